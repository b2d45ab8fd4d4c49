"""The report of a run whose commands went through two gateways: each answers for both."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.gateway.kubernetes_world import NEEDS_API_SERVER, TEMPLATE, World
from tests.gateway.peer_gateways import two_peers

pytestmark = NEEDS_API_SERVER


async def test_each_gateway_reports_the_commands_of_both(world: World) -> None:
    world.kubelet.make_cold = False
    async with two_peers(world) as (one, other):
        await world.kubelet.pod(TEMPLATE, pool="default")
        for gateway in (one, other):
            await gateway.warm(1)
        body: dict[str, Any] = {"holder": "trainer", "grace_seconds": 600}
        assert (await one.client.put("/api/v1/runs/both", json=body)).status_code == 200
        made = (await one.create(run_id="both")).json()
        for gateway, name in ((one, "first"), (other, "second")):
            assert await gateway.run(made["id"], f"echo {name}") == f"{name}\n"
        assert (await other.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
        for gateway in (one, other):
            await gateway.is_ended(made["id"])
        reports = await asyncio.gather(
            *(gateway.client.get("/api/v1/runs/both/report") for gateway in (one, other))
        )
        for answer in reports:
            assert answer.status_code == 200, answer.text
            commands = answer.json()["commands"]
            assert (commands["count"], commands["silent_gateways"]) == (2, 0)
            assert {command["command"] for command in commands["slowest"]} == {"echo first", "echo second"}
            assert answer.json()["starts"]["sandboxes"] == 1
            assert answer.json()["ends"] == {"deleted": 1}  # which both have seen
