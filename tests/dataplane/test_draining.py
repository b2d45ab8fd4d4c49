"""A data plane that drains: it lets requests end for a while, refuses new ones, then cuts the rest."""

from __future__ import annotations

import asyncio

from tests.dataplane.upstreams import Peer
from tests.waiting import loop_turns


async def test_draining_lets_what_runs_end_and_refuses_the_rest(ready, client):
    arrived = asyncio.Event()
    go_on = asyncio.Event()

    async def behave(peer: Peer) -> None:
        body = await peer.body(await peer.request())
        arrived.set()
        await go_on.wait()
        peer.answer(body)
        await peer.ended()

    gw, _ = await ready(behave)
    running, late = await client(gw), await client(gw)
    running.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
    await arrived.wait()
    draining = asyncio.create_task(gw.plane.drain(60.0))
    await loop_turns()
    late.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
    status, headers, body = await late.answer()
    assert (status, headers["connection"], headers["retry-after"]) == (503, "close", "1")
    assert b'"error":"draining"' in body
    go_on.set()
    assert (await running.answer())[0] == 200
    assert await draining == 0


async def test_draining_cuts_what_does_not_end(ready, client):
    arrived = asyncio.Event()
    left = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.body(await peer.request())
        arrived.set()
        await peer.ended()
        left.set()

    gw, _ = await ready(behave)
    running = await client(gw)
    running.send("POST", "/sbx/sb-1/ops", body=b"{}", token=gw.token)
    await arrived.wait()
    assert await gw.plane.drain(0.05) == 1
    await asyncio.wait_for(left.wait(), 30)
    # Not a 500, which clients take for the last word: under an op id the next gateway has the result.
    status, headers, body = await running.answer()
    assert (status, headers["connection"]) == (502, "close")
    assert b'"error":"gateway_ended"' in body
    assert b'"may_have_run":true' in body


async def test_requests_of_the_gateway_itself_are_served_and_their_proof_stays_here(ready, client):
    proofs: list[str | None] = []

    async def behave(peer: Peer) -> None:
        request = await peer.request()
        proofs.append(request.header("x-sandlot-inside"))
        peer.answer(await peer.body(request))
        await peer.ended()

    gw, _ = await ready(behave)
    await gw.plane.drain(0.0)
    proof = next(iter(gw.plane.inside.headers.values()))
    for value, status in (("forged", 503), (proof, 200)):
        own = await client(gw)
        own.send(
            "POST", "/sbx/sb-1/exec", body=b"{}", headers=(f"x-sandlot-inside: {value}",), token=gw.token
        )
        assert (await own.answer())[0] == status
    assert proofs == [None]
