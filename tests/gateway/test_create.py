"""Create: warm and cold, held, idempotent, abandoned, refused."""

from __future__ import annotations

import asyncio
import json

import pytest
from sandlot_contract.template import Template
from sandlot_gateway.core.backend import BackendError, Unavailable
from sandlot_gateway.core.instances import PoolSpec

from tests.gateway.conftest import Running, running
from tests.waiting import until

WARM = PoolSpec("warm", Template(image="host"), 3)


async def warmed(box: Running, spec: PoolSpec = WARM) -> None:
    await box.backend.set_pool(spec)
    await until(lambda: box.gateway.supply.slots.warm.count(spec.name) == spec.size)


async def test_a_cold_create_answers_running(box: Running) -> None:
    made = await box.create(name="one", labels=["a"], environment_vars={"K": "V"}, secrets={"S": "hidden"})
    assert made["status"] == "RUNNING"
    assert made["poolHit"] is False
    assert made["secrets"] == {"S": "***"}
    assert made["environmentVars"] == {"K": "V"}
    assert made["labels"] == ["a"]
    assert made["timings"]["start"] > 0
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
    answer = await box.client.post("/api/v1/sandbox/status:batchGet", json={"sandbox_ids": [made["id"]]})
    assert answer.json()["statuses"][0]["status"] == "RUNNING"


async def test_a_client_that_asks_for_one_alone_is_held_until_it_runs(box: Running) -> None:
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
    async with running(state_dir, machine, orphan_grace=0.3) as box:
        machine.hold_ready = asyncio.Event()
        await _hang_up(box, {"docker_image": "host", "idempotency_key": "back"})
        await _hang_up(box, {"docker_image": "host", "idempotency_key": "never"})
        machine.hold_ready.set()
        made = await box.create(idempotency_key="back")
        never = box.gateway.directory.by_key("alpha", "never")
        assert never is not None
        await until(lambda: not never.live)
        assert never.verdict == "deleted"
        assert (await box.client.get(f"/api/v1/sandbox/{made['id']}")).json()["status"] == "RUNNING"


async def _hang_up(box: Running, body: dict) -> None:
    host, port = box.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    data = json.dumps(body).encode()
    head = f"POST /api/v1/sandbox HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer key-a\r\nContent-Length: {len(data)}\r\n"
    writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + data)
    await writer.drain()
    before = box.gateway.directory.total_live
    await until(lambda: box.gateway.directory.total_live > before or box.gateway.supply.waiting)
    writer.close()
    await writer.wait_closed()


async def test_a_full_queue_refuses_at_once_with_the_position(state_dir, machine) -> None:
    async with running(state_dir, machine, max_waiting=2, max_starts=1) as box:
        machine.hold_ready = asyncio.Event()
        held = [asyncio.create_task(box.create()) for _ in range(2)]
        await until(lambda: box.gateway.supply.waiting == 2)
        answer = await box.client.post("/api/v1/sandbox", json={"docker_image": "host"})
        assert answer.status_code == 503
        assert answer.headers["x-sandlot-queue-position"] == "3"
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["queue_position"] == 3
        machine.hold_ready.set()
        assert {(await task)["status"] for task in held} == {"RUNNING"}
        assert box.gateway.directory.total_live == 2


async def test_a_tenant_that_fills_the_queue_keeps_no_other_tenant_out(state_dir, machine) -> None:
    async with running(state_dir, machine, max_waiting=2, max_starts=1) as box:
        machine.hold_ready = asyncio.Event()
        fields, other = {"docker_image": "host"}, box.as_tenant("key-b")
        held = [asyncio.create_task(box.client.post("/api/v1/sandbox", json=fields)) for _ in range(2)]
        await until(lambda: box.gateway.supply.waiting == 2)
        assert (await box.client.post("/api/v1/sandbox", json=fields)).status_code == 503
        held.append(asyncio.create_task(box.client.post("/api/v1/sandbox", json=fields, headers=other)))
        await until(lambda: box.gateway.supply.waiting == 3)
        # It has its place, and no more than that.
        assert (await box.client.post("/api/v1/sandbox", json=fields, headers=other)).status_code == 503
        machine.hold_ready.set()
        assert {(await task).json()["status"] for task in held} == {"RUNNING"}


async def test_the_quota_of_a_tenant(box: Running) -> None:
    headers = box.as_tenant("key-small")
    for _ in range(2):
        answer = await box.client.post("/api/v1/sandbox", json={"docker_image": "host"}, headers=headers)
        assert answer.status_code == 201
    refused = await box.client.post("/api/v1/sandbox", json={"docker_image": "host"}, headers=headers)
    assert refused.status_code == 429
    await box.client.delete(f"/api/v1/sandbox/{answer.json()['id']}", headers=headers)
    again = await box.client.post("/api/v1/sandbox", json={"docker_image": "host"}, headers=headers)
    assert again.status_code == 201


async def test_no_capacity_waits_until_there_is_some(box: Running) -> None:
    box.machine.fail_launch = [Unavailable("full", retry_after=0.05)]
    assert (await box.create())["status"] == "RUNNING"
    assert box.machine.launched == 2


async def test_a_bad_image_names_the_field_and_frees_the_key(box: Running) -> None:
    box.machine.fail_launch = [BackendError("no such image", error_type="IMAGE_PULL_FAILED", field="image")]
    body = {"docker_image": "nowhere", "idempotency_key": "k"}
    answer = await box.client.post("/api/v1/sandbox", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"] == [{"param": "docker_image", "details": "docker_image: no such image"}]
    assert box.gateway.directory.list(tenant="alpha").total == 0
    assert (await box.create(idempotency_key="k"))["status"] == "RUNNING"


async def test_a_bad_image_found_after_pending_was_answered(state_dir, machine) -> None:
    async with running(state_dir, machine, max_starts=1) as box:
        machine.hold_ready = asyncio.Event()
        first = asyncio.create_task(box.create())
        await until(lambda: machine.launched == 1)
        late = await box.create(docker_image="nowhere", wait_seconds=0)
        assert late["status"] == "PENDING"
        machine.fail_launch = [BackendError("no such image", error_type="IMAGE_PULL_FAILED", field="image")]
        machine.hold_ready.set()
        await first
        await until(lambda: box.gateway.supply.waiting == 0)
        told = (await box.client.get(f"/api/v1/sandbox/{late['id']}")).json()
        assert (told["status"], told["verdictMessage"]) == ("ERROR", "docker_image: no such image")


async def test_a_failed_start_is_an_error_with_its_type(box: Running) -> None:
    box.machine.fail_launch = [BackendError("registry is down", error_type="IMAGE_PULL_FAILED")]
    made = await box.create()
    assert made["status"] == "ERROR"
    assert made["errorType"] == "IMAGE_PULL_FAILED"
    context = (await box.client.get(f"/api/v1/sandbox/{made['id']}/error-context")).json()
    assert context["errorType"] == "IMAGE_PULL_FAILED"
    assert context["errorMessage"] == "registry is down"


async def test_an_instance_that_dies_while_starting_is_tried_once_more(box: Running) -> None:
    box.machine.hold_ready = asyncio.Event()
    creating = asyncio.create_task(box.create())
    await until(lambda: box.machine.sidecars)
    first = next(iter(box.machine.sidecars))
    box.backend.lose(first, verdict="start_failed")
    await until(lambda: box.machine.launched == 2)
    box.machine.hold_ready.set()
    assert (await creating)["status"] == "RUNNING"


async def test_a_claim_that_is_taken_goes_to_the_next(box: Running) -> None:
    await warmed(box)
    first, second, _ = box.gateway.supply.slots.warm
    box.machine.sidecars[first.id].before_claim = lambda claim: (409, {"error": "already_claimed"})
    made = await box.create()
    assert box.machine.of_sandbox(made["id"]).instance_id == second.id
    assert first.id in box.machine.sidecars, "another owner's instance was destroyed"


async def test_an_unreachable_instance_is_discarded(box: Running) -> None:
    await warmed(box)
    first = next(iter(box.gateway.supply.slots.warm))
    await box.machine.sidecars[first.id].close()
    made = await box.create()
    assert made["status"] == "RUNNING"
    await until(lambda: first.id in box.backend.destroyed)


async def test_a_lost_answer_is_asked_for_again(box: Running) -> None:
    await warmed(box)
    first = next(iter(box.gateway.supply.slots.warm))
    sidecar = box.machine.sidecars[first.id]
    sidecar.lose_answers = 1
    made = await box.create()
    assert sidecar.owners == [made["id"]]
    assert sidecar.claims_seen == 2


async def test_an_answer_lost_for_good_discards_the_instance(box: Running) -> None:
    await warmed(box)
    first = next(iter(box.gateway.supply.slots.warm))
    box.machine.sidecars[first.id].lose_answers = 2
    made = await box.create()
    assert made["status"] == "RUNNING"
    await until(lambda: first.id in box.backend.destroyed)
    assert box.machine.of_sandbox(made["id"]).instance_id != first.id


async def test_a_claim_the_sidecar_refuses_names_the_field(box: Running) -> None:
    await warmed(box)
    for sidecar in box.machine.sidecars.values():
        sidecar.before_claim = lambda claim: (400, {"error": "bad", "field": "workdir", "message": "no such"})
    answer = await box.client.post("/api/v1/sandbox", json={"docker_image": "host", "workdir": "/x"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["param"] == "workdir"
    assert box.machine.claimed() == []
    assert box.gateway.supply.slots.warm.count("warm") >= 3


async def test_a_policy_that_cannot_be_held_names_its_list(box: Running) -> None:
    await warmed(box)
    for sidecar in box.machine.sidecars.values():
        sidecar.before_claim = lambda claim: (400, {"error": "bad", "field": "egress", "message": "no such"})
    answer = await box.client.post(
        "/api/v1/sandbox", json={"docker_image": "host", "network_denylist": ["a.org"]}
    )
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["param"] == "network_denylist"


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


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"docker_image": None}, "docker_image"),
        ({"docker_image": ""}, "docker_image"),
        ({"name": "x" * 101}, "name"),
        ({"cpu_cores": "many"}, "cpu_cores"),
        ({"cpu_cores": 0}, "cpu_cores"),
        ({"timeout_minutes": 0}, "timeout_minutes"),
        ({"timeout_minutes": 5, "idle_timeout_minutes": 6}, "idle_timeout_minutes"),
        ({"labels": [""]}, "labels.0"),
        ({"environment_vars": {"A=B": "x"}}, "environment_vars"),
        ({"environment_vars": {"A": 1}}, "environment_vars.A"),
        ({"environment_vars": {"A": "x" * 200_000}}, "environment_vars"),
        ({"volumes": [{"name": "v"}]}, "volumes"),
        ({"network_allowlist": ["10.0.0.0/8", "example.org:22"]}, "network_allowlist.1"),
        ({"network_denylist": ["::1"]}, "network_denylist.0"),
        ({"network_denylist": ["a.org"], "network_allowlist": ["a.org"]}, "network_allowlist"),
        ({"network_denylist": ["a.org"], "network_access": False}, "network_denylist"),
        ({"arch": "riscv"}, "arch"),
        ({"gpu_count": 1}, "gpu_type"),
        ({"pool": "nope"}, "pool"),
        ({"start_command": {"args": []}}, "start_command"),
        ({"workdir": "/a\u0000b"}, "workdir"),
        ({"wait_seconds": 26}, "wait_seconds"),
    ],
)
async def test_bad_fields_are_named(box: Running, fields: dict, param: str) -> None:
    answer = await box.client.post("/api/v1/sandbox", json={"docker_image": "host", **fields})
    assert answer.status_code == 422, answer.text
    params = [error["param"] for error in answer.json()["errors"]]
    assert any(name == param or name.startswith(f"{param}.") for name in params), params
    assert param.partition(".")[0] in answer.json()["detail"]
    assert box.gateway.directory.total_live == 0


async def test_a_body_that_is_no_json_or_too_large(box: Running) -> None:
    headers = {"content-type": "application/json"}
    bad = await box.client.post("/api/v1/sandbox", content=b"{", headers=headers)
    assert bad.status_code == 422
    deep = await box.client.post("/api/v1/sandbox", content=b"[" * 100_000, headers=headers)
    assert deep.status_code == 400
    large = await box.client.post("/api/v1/sandbox", content=b" " * (3 << 20), headers=headers)
    assert large.status_code == 413

    async def endless():
        for _ in range(64):
            yield b" " * (1 << 16)

    chunked = await box.client.post("/api/v1/sandbox", content=endless(), headers=headers)
    assert chunked.status_code == 413
