"""Events with two gateways: a stream of one has the sandboxes of both, and goes on at the other."""

from __future__ import annotations

import asyncio

from tests.gateway.event_streams import Stream, streaming
from tests.gateway.kubernetes_world import NEEDS_API_SERVER, TEMPLATE, World
from tests.gateway.peer_gateways import two_peers

pytestmark = NEEDS_API_SERVER


async def ids(stream: Stream, *wanted: str) -> set[str]:
    """The ids of events until it has had all of these."""
    found: set[str] = set()
    async with asyncio.timeout(60):
        while not found.issuperset(wanted):
            found.add((await stream.next()).data["id"])
    return found


async def test_each_gateway_streams_the_sandboxes_of_both_and_takes_the_others_cursor(world: World) -> None:
    async with two_peers(world) as (one, other):
        await world.kubelet.pod(TEMPLATE, pool="default")
        await one.warm()
        async with streaming(one.client) as here, streaming(other.client) as there:
            begin = (await here.next(any_kind=True)).id
            # In a reused pod, so that no record ever tells the other gateway of it.
            made = await one.made()
            its = f"{made['id']}:ready"
            ready = await there.next()
            assert ready.data["id"] == its
            assert ready.data["data"]["status"] == "RUNNING"
            assert ready.data == (await here.next()).data
            await other.client.delete(f"/api/v1/sandbox/{made['id']}")
            end = f"{made['id']}:ended"
            assert await ids(here, end) == await ids(there, end) == {end}
        async with streaming(other.client, params={"cursor": begin}) as stream:
            assert await ids(stream, its, end) == {its, end}
        _, number, at = begin.split("-")
        unknown = f"00000000-{number}-{int(at) - 3_600_000}"
        answer = await other.client.get("/api/v1/events", params={"cursor": unknown})
        assert answer.status_code == 410, "no gateway was there then"
