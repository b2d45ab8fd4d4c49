"""Forks of one key that are asked for at two gateways, whose copy lies in a directory of both."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.gateway.kubernetes_world import NEEDS_API_SERVER, TEMPLATE, World
from tests.gateway.peer_gateways import two_peers
from tests.waiting import until

pytestmark = NEEDS_API_SERVER


async def test_a_gateway_that_gives_up_leaves_the_copy_to_the_one_that_began_it(world: World) -> None:
    async with two_peers(world, checkpoint_dir=world.directory / "kept") as (one, other):
        await world.kubelet.pod(TEMPLATE, pool="default")
        for gateway in (one, other):
            await gateway.warm()
        box = await one.made()
        await one.run(box["id"], "echo here > /file")
        world.kubelet.make_cold = False
        path, body = f"/api/v1/sandbox/{box['id']}/fork", {"count": 2, "idempotency_key": "k"}
        asking = asyncio.create_task(one.client.post(path, json={**body, "wait_seconds": 25}))

        async def copies() -> list[dict[str, Any]]:
            told = await one.client.get(f"/api/v1/sandbox/{box['id']}/checkpoints")
            return told.json()["checkpoints"]

        async def durable() -> list[dict[str, Any]]:
            return [copy for copy in await copies() if copy["state"] == "DURABLE"]

        before: list[dict[str, Any]] = await until(durable)
        asked = await other.client.post(path, json={**body, "wait_seconds": 20, "deadline_seconds": 1})
        assert asked.status_code == 503, asked.text
        # It has ended what it does after a group: a gateway that stops waits for that.
        temporary = other.gateway.temporary
        assert temporary is not None
        await until(lambda: not temporary._uses)
        after = await copies()
        assert [copy["id"] for copy in after] == [copy["id"] for copy in before]
        world.kubelet.makes_cold()
        told = (await asking).json()
        while told["status"] == "PENDING":  # it may take longer than a call waits
            told = (await one.client.post(path, json={**body, "wait_seconds": 25})).json()
        assert told["status"] == "RUNNING", told
        for fork in told["sandboxes"]:
            assert await one.run(fork["id"], "cat /file") == "here\n"

        async def none() -> bool:
            return await copies() == []

        await until(none)
