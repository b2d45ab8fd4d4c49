"""Claims over the real surface: the first one wins, what it asks for is checked, and its tokens open what is theirs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.sidecar.support import SANDBOX_TOKEN, Sidecar
from tests.sidecar.webhook_receiver import INSTANCE_TOKEN
from tests.waiting import until

pytestmark = pytest.mark.root


def text_of(path: str) -> str:
    return Path(path).read_text()


async def test_state_document(make) -> None:
    box = await make()
    warm = (await box.instance("GET", "/v1/state")).json()
    assert set(warm) == {
        "instance_id", "address", "generation", "phase", "claiming", "version", "mounts_copies", "sandbox_id", "claimed_at", "deadline_at", "idle_timeout",
        "ready_at", "last_active_at", "verdict", "message", "meta", "ops_running", "template", "notes", "restoring",
        "start_command", "egress", "user", "bound_to", "uses", "image", "services",
    }  # fmt: skip
    assert warm["start_command"] == {"state": "none", "exit_code": None}
    assert (warm["bound_to"], warm["uses"]) == (None, 0)
    assert 0 <= time.time() - warm["ready_at"] < 60
    state = await box.claim(timeout=100, idle_timeout=50, meta={"name": "n"}, user="root")
    assert (state["phase"], state["sandbox_id"], state["meta"]) == ("claimed", "sb-test", {"name": "n"})
    assert state["deadline_at"] == pytest.approx(state["claimed_at"] + 100)
    assert (state["idle_timeout"], state["user"]) == (50, "root")
    assert (state["bound_to"], state["uses"]) == ("tenant-a", 1)
    assert (await box.call("GET", "/v1/state")).status_code == 200


async def test_the_first_claim_wins(make) -> None:
    box = await make()
    bodies = [box.claim_body(sandbox_id=f"sb-{number}", token=f"token-{number}") for number in range(8)]
    answers = await asyncio.gather(*(box.instance("POST", "/v1/claim", json=body) for body in bodies))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7
    winner = next(number for number, answer in enumerate(answers) if answer.status_code == 200)
    persisted = json.loads(text_of(f"{box.directory}/claim.json"))
    assert persisted["claim"]["sandbox_id"] == f"sb-{winner}"
    for number, answer in enumerate(answers):
        if number != winner:
            assert answer.json()["error"] == "already_claimed"
            assert answer.json()["sandbox_id"] == f"sb-{winner}"
    again = await box.instance("POST", "/v1/claim", json=bodies[winner])
    assert (again.status_code, again.json()["sandbox_id"]) == (200, f"sb-{winner}")
    changed = await box.instance("POST", "/v1/claim", json={**bodies[winner], "env": {"A": "b"}})
    assert changed.status_code == 409
    stranger = await box.instance("POST", "/v1/claim", json=box.claim_body(tenant="tenant-b", sandbox_id="x"))
    assert stranger.status_code == 409
    assert "sandbox_id" not in stranger.json()
    assert len([event for event in box.webhooks.events if event["event"] == "claimed"]) <= 1


async def test_generation_must_be_the_instances(make) -> None:
    box = await make()
    stale = await box.instance("POST", "/v1/claim", json=box.claim_body(generation=2))
    assert (stale.status_code, stale.json()["error"]) == (409, "stale_generation")
    assert (await box.claim(generation=1))["generation"] == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sandbox_id", 7), ("sandbox_id", ""), ("token", None), ("env", {"A": 1}), ("env", {"A=B": "x"}), ("env", []),
        ("secrets", {"": "x"}), ("limits", {"cpu": 0}), ("limits", {"memory": "1"}), ("limits", {"pids": -1}),
        ("network", "some"), ("timeout", -1), ("timeout", "1"), ("idle_timeout", 0), ("workdir", "relative"),
        ("start_command", []), ("start_command", [""]), ("start_command", 5), ("meta", 3), ("generation", "1"),
    ],
)  # fmt: skip
async def test_bad_claims_name_the_field(make, field: str, value: object) -> None:
    box = await make()
    answer = await box.instance("POST", "/v1/claim", json={**box.claim_body(), field: value})
    assert answer.status_code == 400, answer.text
    assert answer.json()["field"].startswith(field)


async def test_tokens_open_only_what_is_theirs(make) -> None:
    box = await make()
    assert (await box.call("POST", "/v1/exec", json={"command": "true"})).json()["error"] == "not_claimed"
    await box.claim()
    for token in (INSTANCE_TOKEN, "wrong", SANDBOX_TOKEN[:-1], SANDBOX_TOKEN + "x"):
        answer = await box.client.post(
            "/v1/exec", json={"command": "true"}, headers={"Authorization": f"Bearer {token}"}
        )
        assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized")
    for route in ("claim", "end", "reset"):
        assert (await box.call("POST", f"/v1/{route}", json={})).status_code == 401
    assert (await box.call("GET", "/v1/metrics")).status_code == 401
    assert (await box.client.post("/v1/exec", json={"command": "true"})).status_code == 401


async def test_network_none(make) -> None:
    box = await make(claim={"network": "none"})
    answer = await box.exec("cat /proc/net/dev; ls /sys/class/net 2>/dev/null")
    assert "eth" not in answer["stdout"]
    refused = await box.exec("python3 -c \"import socket; socket.create_connection(('1.1.1.1', 53), 2)\"")
    assert refused["exit_code"] != 0


async def test_no_state_tells_of_an_owner_before_the_claim_is_in_force(make) -> None:
    """Limits and a network of its own make the claim wait for the executor."""
    told: set[tuple[str, str | None, bool]] = set()

    async def watch(box: Sidecar) -> None:
        while True:
            state = (await box.instance("GET", "/v1/state")).json()
            told.add((state["phase"], state["sandbox_id"], state["claimed_at"] is not None))
            if state["phase"] == "claimed":
                return

    for attempt in range(5):
        box = await make()
        watching = [asyncio.create_task(watch(box)) for _ in range(4)]
        await box.claim(limits={"pids": 100 + attempt}, network="none")
        await asyncio.gather(*watching)
    assert told <= {("warm", None, False), ("claimed", "sb-test", True)}


async def test_a_state_says_that_a_claim_is_being_applied(make) -> None:
    """Who asked meanwhile took it for free."""
    box = await make()

    async def state() -> dict[str, Any]:
        return (await box.instance("GET", "/v1/state")).json()

    async def is_claiming() -> bool:
        return (await state())["claiming"]

    os.kill(box.executor_pid(), signal.SIGSTOP)
    try:
        claiming = asyncio.create_task(box.claim(limits={"pids": 100}, network="none"))
        await until(is_claiming)
        told = await state()
        assert (told["phase"], told["sandbox_id"]) == ("warm", None)
    finally:
        os.kill(box.executor_pid(), signal.SIGCONT)
    await claiming
    told = await state()
    assert (told["phase"], told["sandbox_id"], told["claiming"]) == ("claimed", "sb-test", False)
