"""Create: warm and cold, held or answered PENDING, idempotent, and what becomes of it when its caller leaves."""

from __future__ import annotations

import asyncio
import json

import pytest
from sandlot_gateway.control import sandboxes
from sandlot_gateway.core.backend import Unavailable

from tests.gateway.conftest import Running, running
from tests.gateway.warm_pool import warmed
from tests.waiting import until


async def test_a_cold_create_answers_running(box: Running) -> None:
    box.machine.hold_ready = asyncio.Event()
    fields = {"name": "one", "labels": ["a"], "environment_vars": {"K": "V"}, "secrets": {"S": "hidden"}}
    creating = asyncio.create_task(box.create(**fields))
    await until(lambda: box.machine.instances)
    await asyncio.sleep(0.1)  # the loop's clock counts milliseconds: a stub may start in less than one
    box.machine.hold_ready.set()
    made = await creating
    assert made["status"] == "RUNNING"
    assert made["poolHit"] is False
    assert made["secrets"] == {"S": "***"}
    assert made["environmentVars"] == {"K": "V"}
    assert made["labels"] == ["a"]
    assert 0.099 < made["timings"]["start"] < 60
    assert made["notes"] == ["a stub"]
    claim = box.machine.of_sandbox(made["id"]).claim
    assert claim is not None
    assert claim["secrets"] == {"S": "hidden"}
    assert "hidden" not in json.dumps(claim["meta"])
    assert claim["timeout"] == 3600.0
    auth = made["gatewayAuth"]
    assert auth["gateway_url"] == box.url
    answer = await box.client.post(
        f"{auth['gateway_url']}/{auth['user_ns']}/{auth['job_id']}/exec",
        json={"command": "hello"},
        headers={"Authorization": f"Bearer {auth['token']}"},
    )
    assert answer.json()["stdout"] == "hello"


async def test_a_warm_create_takes_from_the_pool_which_fills_again(box: Running) -> None:
    await warmed(box)
    made = await box.create()
    assert made["poolHit"] is True
    assert made["timings"]["start"] == 0
    await until(lambda: box.gateway.supply.slots.warm.count("warm") == 3)
    named = await box.create(docker_image=None, pool="warm")
    assert named["dockerImage"] == "host"
    assert named["poolHit"] is True


async def test_another_template_does_not_take_from_the_pool(box: Running) -> None:
    await warmed(box)
    made = await box.create(cpu_cores=2.0)
    assert made["poolHit"] is False
    assert box.gateway.supply.slots.warm.count("warm") == 3


async def test_the_same_key_is_the_same_sandbox_also_at_the_same_time(box: Running) -> None:
    box.machine.hold_ready = asyncio.Event()
    asked = [asyncio.create_task(box.create(idempotency_key="k")) for _ in range(20)]
    await until(lambda: box.machine.launched)
    box.machine.hold_ready.set()
    ids = {(await task)["id"] for task in asked}
    assert len(ids) == 1
    assert (await box.create(idempotency_key="k"))["id"] in ids
    assert len(box.machine.claimed()) == 1
    other = await box.client.post(
        "/api/v1/sandbox",
        json={"docker_image": "host", "idempotency_key": "k"},
        headers=box.as_tenant("key-b"),
    )
    assert other.json()["id"] not in ids


async def test_a_slow_start_answers_pending_and_goes_on(box: Running) -> None:
    box.machine.hold_ready = asyncio.Event()
    made = await box.create(wait_seconds=0.05)
    assert made["status"] == "PENDING"
    assert made["queuePosition"] == 1
    box.machine.hold_ready.set()

    async def runs() -> bool:
        answer = await box.client.post("/api/v1/sandbox/status:batchGet", json={"sandbox_ids": [made["id"]]})
        return answer.json()["statuses"][0]["status"] == "RUNNING"

    await until(runs)


async def test_a_client_that_asks_for_one_alone_is_held_until_it_runs(
    box: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxes, "READY_HOLD", 60.0)  # longer than a start takes on a loaded machine
    box.machine.hold_ready = asyncio.Event()
    made = await box.create(wait_seconds=0)
    path = f"/api/v1/sandbox/{made['id']}"
    assert (await box.client.get(path)).json()["status"] == "PENDING"
    old = {"User-Agent": "prime-sandboxes/0.2.27 python/3.11.0"}
    asked = asyncio.create_task(box.client.get(path, headers=old))
    await until(lambda: box.gateway.edge.in_flight == 1)
    box.machine.hold_ready.set()
    assert (await asked).json()["status"] == "RUNNING"


async def test_a_pending_sandbox_can_be_deleted(box: Running) -> None:
    box.machine.hold_ready = asyncio.Event()
    made = await box.create(wait_seconds=0)
    answer = await box.client.delete(f"/api/v1/sandbox/{made['id']}")
    assert answer.json()["success"] is True
    box.machine.hold_ready.set()
    await until(lambda: len(box.gateway.supply.slots.warm) == 1)
    assert box.machine.claimed() == []
    assert (await box.client.get(f"/api/v1/sandbox/{made['id']}")).json()["verdict"] == "deleted"


async def test_deleted_while_the_sidecar_accepts(box: Running) -> None:
    await warmed(box)
    accepting, go_on = asyncio.Event(), asyncio.Event()

    async def slow(claim: dict) -> None:
        accepting.set()
        await go_on.wait()

    for sidecar in box.machine.sidecars.values():
        sidecar.before_claim = slow
    creating = asyncio.create_task(box.create(name="doomed"))
    await accepting.wait()
    listed = (await box.client.get("/api/v1/sandbox")).json()["sandboxes"]
    await box.client.delete(f"/api/v1/sandbox/{listed[0]['id']}")
    go_on.set()
    assert (await creating)["status"] == "TERMINATED"
    await until(lambda: box.machine.claimed() == [])


async def test_a_caller_that_leaves_without_a_key_leaves_nothing(box: Running) -> None:
    box.machine.hold_ready = asyncio.Event()
    await _hang_up(box, {"docker_image": "host"})
    box.machine.hold_ready.set()
    await until(lambda: box.gateway.directory.list(tenant="alpha", active=True).total == 0)
    await until(lambda: box.machine.claimed() == [])


async def test_a_caller_that_comes_back_with_its_key_finds_its_sandbox(state_dir, machine) -> None:
    async with running(state_dir, machine, orphan_grace=5.0) as box:  # in which the caller has to come back
        machine.hold_ready = asyncio.Event()
        await _hang_up(box, {"docker_image": "host", "idempotency_key": "never"})
        await _hang_up(box, {"docker_image": "host", "idempotency_key": "back"})
        never, back = [box.gateway.directory.by_key("alpha", key) for key in ("never", "back")]
        assert never is not None
        assert back is not None
        machine.hold_ready.set()
        made = await box.create(idempotency_key="back")
        assert made["id"] == back.id
        await until(lambda: not never.live)
        assert never.verdict == "deleted"
        assert (await box.client.get(f"/api/v1/sandbox/{made['id']}")).json()["status"] == "RUNNING"


async def _hang_up(box: Running, body: dict) -> None:
    host, port = box.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    data = json.dumps(body).encode()
    head = f"POST /api/v1/sandbox HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer key-a\r\nContent-Length: {len(data)}\r\n"
    before = box.gateway.directory.total_live
    writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + data)
    await until(lambda: box.gateway.directory.total_live > before)
    writer.close()
    await writer.wait_closed()


async def test_no_capacity_waits_until_there_is_some(box: Running) -> None:
    box.machine.fail_launch = [Unavailable("full", retry_after=0.05)]
    assert (await box.create())["status"] == "RUNNING"
    assert box.machine.launched == 2


async def test_a_policy_is_told_as_it_is_held(box: Running) -> None:
    for given, told in (
        ({"network_allowlist": ["A.org", "10.0.0.1"]}, [["a.org", "10.0.0.1/32"], None]),
        ({"network_denylist": ["*.a.org:443"]}, [None, ["*.a.org:443"]]),
        ({"network_denylist": []}, [None, None]),
        ({"network_allowlist": []}, [[], None]),
        ({"network_allowlist": [], "network": "full"}, [[], None]),
    ):
        made = await box.create(**given)
        assert [made["networkAllowlist"], made["networkDenylist"]] == told
        assert made["networkAccess"] is (given != {"network_allowlist": []})
