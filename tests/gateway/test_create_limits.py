"""How many creates may wait and how many sandboxes a tenant may have; the rest are refused at once."""

from __future__ import annotations

import asyncio

from tests.gateway.conftest import Running, running
from tests.waiting import until


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
