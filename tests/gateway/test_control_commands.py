"""What the control API shows of a sandbox's commands and to an overview, and that neither is a use of the sandbox."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.gateway.conftest import API, Running, running
from tests.waiting import until

OP: dict[str, Any] = {
    "op_id": "a", "command": "true", "start_command": False, "state": "ended", "pid": 7, "verdict": "exited",
    "exit_code": 0, "signal": None, "message": None, "truncated": False, "stdout_bytes": 3, "stderr_bytes": 0,
    "usage": {"queued": 0.0, "wall": 0.5, "cpu": 0.25, "peak_memory": 4096}, "started_at": 1.0, "ended_at": 1.5,
    "offset": 8, "detached": False,
}  # fmt: skip


async def test_commands_are_shown_without_what_only_clients_need(box: Running) -> None:
    made = await box.create()
    url = f"{API}/sandbox/{made['id']}/commands"
    sidecar = box.machine.of_sandbox(made["id"])
    sidecar.commands_answer = (200, {"commands": [OP], "total": 9})
    found = (await box.client.get(url)).json()
    assert (found["total"], found["unknown"]) == (9, None)
    assert found["commands"] == [
        {name: value for name, value in OP.items() if name not in ("pid", "usage", "offset", "detached")}
        | {"started_at": "1970-01-01T00:00:01.000000Z", "ended_at": "1970-01-01T00:00:01.500000Z"}
        | {"wall": 0.5, "cpu": 0.25, "peak_memory": 4096}
    ]
    sidecar.commands_answer = (200, b"out\xff")
    assert (await box.client.get(f"{url}/a/output")).json() == {"output": "out�"}


@pytest.mark.parametrize(
    ("answer", "word"), [((404, {}), "earlier version"), ((409, {}), "not run"), ((410, {}), "not run")]
)
async def test_why_no_commands_are_known(box: Running, answer: tuple[int, Any], word: str) -> None:
    made = await box.create()
    url = f"{API}/sandbox/{made['id']}/commands"
    box.machine.of_sandbox(made["id"]).commands_answer = answer
    found = await box.client.get(url)
    assert (found.status_code, found.json()["commands"]) == (200, [])
    assert word in found.json()["unknown"]
    assert (await box.client.get(f"{url}/a/output")).status_code == 404


async def test_those_of_an_ended_sandbox_are_gone(box: Running) -> None:
    made = await box.create()
    await box.client.delete(f"{API}/sandbox/{made['id']}")
    found = (await box.client.get(f"{API}/sandbox/{made['id']}/commands")).json()
    assert "only while it runs" in found["unknown"]
    output = await box.client.get(f"{API}/sandbox/{made['id']}/commands/a/output")
    assert (output.status_code, "only while it runs" in output.json()["detail"]) == (404, True)


@pytest.mark.parametrize("answer", [(401, {}), (500, {}), (200, {"commands": [{}], "total": 1}), (200, b"{")])
async def test_a_sidecar_that_does_not_keep_the_contract_is_a_502(box: Running, answer: Any) -> None:
    made = await box.create()
    box.machine.of_sandbox(made["id"]).commands_answer = answer
    assert (await box.client.get(f"{API}/sandbox/{made['id']}/commands")).status_code == 502


@pytest.mark.parametrize("path", ["commands", "commands/a/output"])
async def test_what_a_sidecar_may_send_is_bounded(box: Running, path: str) -> None:
    made = await box.create()
    box.machine.of_sandbox(made["id"]).commands_answer = (200, b" " * (9 << 20))
    answer = await box.client.get(f"{API}/sandbox/{made['id']}/{path}")
    assert (answer.status_code, "larger than 8388608 bytes" in answer.json()["detail"]) == (502, True)


async def test_a_look_does_not_keep_a_sandbox_whose_creator_has_left(state_dir, machine) -> None:
    machine.hold_ready = asyncio.Event()
    async with running(state_dir, machine, orphan_grace=0.5) as box:
        body = {"docker_image": "host", "idempotency_key": "k", "wait_seconds": 25}
        creating = asyncio.create_task(box.client.post(f"{API}/sandbox", json=body))
        (waiting,) = await until(lambda: box.gateway.directory.live())
        creating.cancel()
        url = f"{API}/sandbox/{waiting.id}"

        async def ended() -> bool:
            for path in (f"{url}?observe=true", f"{url}/commands", f"{API}/sandbox?overview=true"):
                assert (await box.client.get(path)).status_code == 200
            return (await box.client.get(f"{url}?observe=true")).json()["status"] != "PENDING"

        await until(ended)
        assert "caller left" in (waiting.message or "")


async def test_an_overview_says_what_waits_and_leaves_out_what_is_long(state_dir, machine) -> None:
    machine.hold_ready = asyncio.Event()
    async with running(state_dir, machine) as box:
        for n in range(2):
            body = {
                "docker_image": "host",
                "wait_seconds": 0,
                "environment_vars": {"A": "b"},
                "secrets": {"S": "t"},
            }
            await box.client.post(f"{API}/sandbox", json={**body, "name": f"s{n}", "start_command": "x"})
        plain, overview = [
            (await box.client.get(f"{API}/sandbox", params=query)).json()["sandboxes"]
            for query in ({}, {"overview": "true"})
        ]
        assert [one["queuePosition"] for one in overview] == [2, 1]
        assert [one["queuePosition"] for one in plain] == [None, None]
        for one, full in zip(overview, plain, strict=True):
            assert one == full | {
                "startCommand": None,
                "environmentVars": {},
                "secrets": {},
                "advancedConfigs": None,
                "queuePosition": one["queuePosition"],
            }
            assert full["environmentVars"] == {"A": "b"}


async def test_an_overview_asks_for_the_pools_once(
    state_dir, machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.hold_ready = asyncio.Event()
    async with running(state_dir, machine) as box:
        for _ in range(12):
            body = {"docker_image": "host", "wait_seconds": 0}
            await box.client.post(f"{API}/sandbox", json=body)
        asked: list[None] = []
        pools = box.backend.pools
        monkeypatch.setattr(box.backend, "pools", lambda: asked.append(None) or pools())
        listed = (await box.client.get(f"{API}/sandbox", params={"overview": "true"})).json()["sandboxes"]
        assert sorted(one["queuePosition"] for one in listed) == list(range(1, 13))
        assert 0 < len(asked) < 12, "the queue may have asked for them, too"
