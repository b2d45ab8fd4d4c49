"""A create whose caller hangs up at one gateway, and is repeated at another, with real sidecars."""

from __future__ import annotations

import asyncio
import json

from tests.gateway.kubernetes_world import FIELDS, NEEDS_API_SERVER, TEMPLATE, Running, World
from tests.gateway.peer_gateways import cold_names, two_peers
from tests.waiting import until

pytestmark = NEEDS_API_SERVER


async def test_one_that_is_used_only_through_another_gateway_outlives_the_grace(world: World) -> None:
    """Another sandbox, whose caller hangs up later and never comes back, shows that the grace is over."""
    world.kubelet.make_cold = False
    # Longer than the pauses between the questions of the gateway where the retry waits.
    async with two_peers(world, orphan_grace=8.0) as (one, other):
        world.kubelet.webhook = other.webhook
        await _hang_up(one, "back")
        [first] = await cold_names(world, 1)
        made = asyncio.create_task(other.create(idempotency_key="back"))
        await until(lambda: other.gateway.directory.by_key("alpha", "back"))
        await world.kubelet.pod(TEMPLATE, cold=first)
        back = await other.settled(await made)
        assert back["status"] == "RUNNING", back
        await _hang_up(one, "never")
        [second] = set(await cold_names(world, 2)) - {first}
        await world.kubelet.pod(TEMPLATE, cold=second)
        never = one.gateway.directory.by_key("alpha", "never")
        assert never is not None
        await until(lambda: not never.live)
        assert never.verdict == "deleted"
        assert await other.run(back["id"], "echo lives") == "lives\n"


async def _hang_up(gateway: Running, key: str) -> None:
    """Send a create, and leave once the gateway has it."""
    host, port = str(gateway.client.base_url).removeprefix("http://").rstrip("/").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    data = json.dumps({**FIELDS, "idempotency_key": key, "wait_seconds": 25}).encode()
    head = f"POST /api/v1/sandbox HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer key\r\nContent-Length: {len(data)}\r\n"
    writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + data)
    await writer.drain()
    await until(lambda: gateway.gateway.directory.by_key("alpha", key))
    writer.close()
    await writer.wait_closed()
