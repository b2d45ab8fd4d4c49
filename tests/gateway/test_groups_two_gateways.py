"""Groups through two gateways on Kubernetes that claim the same warm pods at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.gateway.kubernetes_world import FIELDS, NEEDS_API_SERVER, TEMPLATE, Running, World
from tests.gateway.peer_gateways import claimed, two_peers

pytestmark = NEEDS_API_SERVER


async def _group(gateway: Running, count: int, **fields: Any) -> list[str]:
    body = {"members": [{**FIELDS, "count": count}], "wait_seconds": 25, **fields}
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
