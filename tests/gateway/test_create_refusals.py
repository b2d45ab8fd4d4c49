"""Creates that are refused or fail: the answer names the field, or the type of the error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.engine.open_creates import Part

from tests.gateway.conftest import Running, running
from tests.gateway.warm_pool import warmed
from tests.waiting import until


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


async def test_a_claim_the_sidecar_refuses_names_the_field(box: Running) -> None:
    await warmed(box)
    for sidecar in box.machine.sidecars.values():
        sidecar.before_claim = lambda claim: (400, {"error": "bad", "field": "workdir", "message": "no such"})
    answer = await box.client.post("/api/v1/sandbox", json={"docker_image": "host", "workdir": "/x"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["param"] == "workdir"
    assert box.machine.claimed() == []
    assert box.gateway.supply.slots.warm.count("warm") >= 3


async def test_one_that_was_deleted_while_a_sidecar_refused_its_claim_stays_known(box: Running) -> None:
    """It was taken for a create that is refused at once, of which nothing remains: its id was unknown."""
    await warmed(box)
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def refuses(_claim: dict[str, Any]) -> tuple[int, dict[str, str]]:
        asked.set()
        await go_on.wait()
        return 400, {"error": "bad", "field": "workdir", "message": "no such"}

    for sidecar in box.machine.sidecars.values():
        sidecar.before_claim = refuses
    made = await box.create(workdir="/x", wait_seconds=0)
    await asyncio.wait_for(asked.wait(), 60)
    assert (await box.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
    go_on.set()
    await until(lambda: not box.gateway.lifecycle.creates.those(Part.BRINGS_UP))
    told = (await box.client.get(f"/api/v1/sandbox/{made['id']}")).json()
    assert (told.get("status"), told.get("verdict")) == ("TERMINATED", "deleted")
    assert box.machine.claimed() == []


async def test_a_policy_that_cannot_be_held_names_its_list(box: Running) -> None:
    await warmed(box)
    for sidecar in box.machine.sidecars.values():
        sidecar.before_claim = lambda claim: (400, {"error": "bad", "field": "egress", "message": "no such"})
    answer = await box.client.post(
        "/api/v1/sandbox", json={"docker_image": "host", "network_denylist": ["a.org"]}
    )
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["param"] == "network_denylist"


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
        ({"gpu_type": "H100"}, "gpu_type"),
        ({"gpu_count": 9}, "gpu_count"),
        ({"gpu_count": 1, "gpu_type": "H\u0000"}, "gpu_type"),
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
    digits = await box.client.post("/api/v1/sandbox", content=b"1" * 5000, headers=headers)
    text = await box.client.post("/api/v1/sandbox", content=b'"\xff"', headers=headers)
    for answer in (deep, digits, text):
        assert answer.status_code == 400
        assert answer.json()["detail"].startswith("the body cannot be read as JSON: send UTF-8")
    large = await box.client.post("/api/v1/sandbox", content=b" " * (3 << 20), headers=headers)
    assert large.status_code == 413

    async def endless():
        for _ in range(64):
            yield b" " * (1 << 16)

    chunked = await box.client.post("/api/v1/sandbox", content=endless(), headers=headers)
    assert chunked.status_code == 413


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", "/sandbox", '{"docker_image":"host","name":DEEP}', "name"),
        ("POST", "/sandbox", '{"docker_image":"host","advanced_configs":{"a":DEEP}}', "advanced_configs"),
        ("POST", "/sandbox", '{"docker_image":"host","volumes":DEEP}', "volumes"),
        ("DELETE", "/sandbox", '{"sandbox_ids":DEEP}', "sandbox_ids"),
        ("POST", "/sandbox/status:batchGet", '{"sandbox_ids":[DEEP]}', "sandbox_ids"),
        ("POST", "/sandbox/background-jobs/status:batchGet", '{"jobs":[DEEP]}', "jobs"),
        ("PUT", "/pools/p", '{"size":1,"image":DEEP}', "image"),
    ],
)
@pytest.mark.parametrize("start", ["[", '{"a":'])
async def test_what_is_nested_deeply_is_a_refused_field_and_no_failure(
    box: Running, method: str, path: str, body: str, field: str, start: str
) -> None:
    """As deep as JSON is still read; a 503 would have clients send it again."""
    for depth in (300, 600, 900):
        deep = start * depth + "1" + {"[": "]"}.get(start, "}") * depth
        answer = await box.client.request(
            method,
            f"/api/v1{path}",
            content=body.replace("DEEP", deep),
            headers={"content-type": "application/json"},
        )
        assert answer.status_code == 422, f"{depth} levels: {answer.text}"
        assert answer.json()["errors"][0]["param"].startswith(field)
