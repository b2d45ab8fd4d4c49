"""Groups through two gateways on Kubernetes that claim the same warm pods at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.gateway.kubernetes_world import FIELDS, NEEDS_API_SERVER, TEMPLATE, Running, World
from tests.gateway.peer_gateways import claimed, two_peers
from tests.waiting import until

pytestmark = NEEDS_API_SERVER

_GRACE = 5.0  # seconds: the least


async def _group(gateway: Running, count: int, **fields: Any) -> list[str]:
    body = {"members": [{**FIELDS, "count": count}], "wait_seconds": 25, **fields}
    answer = await gateway.client.post("/api/v1/group", json=body, timeout=60)
    while answer.status_code == 201 and answer.json()["status"] == "PENDING" and "idempotency_key" in fields:
        # Cold starts may take longer than a call waits.
        answer = await gateway.client.post("/api/v1/group", json=body, timeout=60)
    assert answer.status_code == 201, answer.text
    assert answer.json()["status"] == "RUNNING", answer.text
    return [member["id"] for member in answer.json()["sandboxes"]]


async def test_groups_at_two_gateways_share_no_pod_and_one_key_is_one_group(world: World) -> None:
    async with two_peers(world) as (one, other):
        for _ in range(9):
            await world.kubelet.pod(TEMPLATE, pool="default")
        for gateway in (one, other):
            await gateway.warm(9)
        first, second = await asyncio.gather(_group(one, 3), _group(other, 3))
        assert len({*first, *second}) == 6
        same, again = await asyncio.gather(
            *(_group(gateway, 3, idempotency_key="k") for gateway in (one, other))
        )
        assert same == again
        assert sorted(await claimed(world)) == sorted([*first, *second, *same])


async def test_a_group_is_kept_for_a_caller_that_came_back_to_another_gateway(world: World) -> None:
    async with two_peers(world, orphan_grace=_GRACE) as (one, other):
        world.kubelet.make_cold = False
        body = {"members": [{**FIELDS, "count": 2}], "idempotency_key": "k"}
        asked = await one.client.post("/api/v1/group", json={**body, "wait_seconds": 0})
        group_id = asked.json()["id"]
        asked = await other.client.post("/api/v1/group", json={**body, "wait_seconds": _GRACE * 1.2})
        assert (asked.status_code, asked.json()["status"]) == (201, "PENDING"), asked.text
        began = [member.id for member in one.gateway.directory.list(tenant="alpha", group=group_id).sandboxes]
        world.kubelet.makes_cold()
        ids = await _group(other, 2, idempotency_key="k")
        assert set(ids) == set(began)
        # The group has a caller, of whom the gateway that began it knows nothing.
        await until(lambda: one.gateway.lifecycle.groups.get(group_id, "alpha") is None)
        assert (await other.client.delete(f"/api/v1/sandbox/{ids[0]}")).status_code == 200
        await one.is_ended_somehow(ids[0])
        await asyncio.sleep(_GRACE * 1.1)
        for gateway in (one, other):
            assert (await gateway.get(ids[1]))["status"] == "RUNNING"
        assert await claimed(world) == [ids[1]]


async def test_the_key_of_a_group_that_came_to_nothing_is_free_at_every_gateway(world: World) -> None:
    async with two_peers(world) as (one, other):
        pods = [await world.kubelet.pod(TEMPLATE, pool="default") for _ in range(2)]
        for gateway in (one, other):
            await gateway.warm(2)
        body = {"members": [{**FIELDS, "count": 2}], "idempotency_key": "k"}
        with world.kubelet.sidecars[pods[0]].stopped():
            asking = asyncio.create_task(
                one.client.post("/api/v1/group", json={**body, "wait_seconds": 20, "deadline_seconds": 10})
            )
            # The other gateway learns the first one's key from its sidecar, at the latest as that ends.
            await until(lambda: other.gateway.directory.list(tenant="alpha").sandboxes)
            asked = await asking
            assert asked.status_code == 503, asked.text
            (before,) = other.gateway.directory.list(tenant="alpha").sandboxes
            await other.is_ended(before.id)
        ids = await _group(other, 2, idempotency_key="k")
        assert before.id not in ids
        assert set(await _group(one, 2, idempotency_key="k")) == set(ids)
