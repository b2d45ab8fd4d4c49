"""More requests than there is room for: the queue, the refusals, and the share of each tenant."""

from __future__ import annotations

import asyncio

from sandlot_gateway.data.breaker import Limits

from tests.dataplane.upstreams import Peer
from tests.waiting import until


async def test_a_full_breaker_answers_at_once(ready, client):
    go_on = asyncio.Event()

    async def behave(peer: Peer) -> None:
        while True:
            body = await peer.body(await peer.request())
            await go_on.wait()
            peer.answer(body)

    gw, _ = await ready(behave, limits=Limits(per_sandbox=2, queue_per_sandbox=1, retry_after=7))
    holding = [await client(gw) for _ in range(3)]
    for n, connection in enumerate(holding):
        connection.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
        await until(lambda n=n: gw.plane.breaker.running + gw.plane.breaker.waiting == n + 1)
    extra = await client(gw)
    extra.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
    status, headers, body = await asyncio.wait_for(extra.answer(), 30)
    assert (status, headers["retry-after"]) == (503, "7")
    assert b'"error":"busy"' in body
    assert b'"running":2,"queued":1' in body
    assert _rejections(gw) == {("exec", "sandbox"): 1.0}
    # What steers a running op passes by the queue, and so does a watch of files.
    watching = await client(gw)
    watching.send("GET", "/sbx/sb-1/files/watch?path=/", body=None, token=gw.token)
    go_on_quickly = asyncio.create_task(_ask(extra, gw, "POST", "/sbx/sb-1/ops/op-1/stdin?offset=0"))
    go_on.set()
    assert await go_on_quickly == 200
    assert (await watching.answer())[0] == 200
    for connection in holding:
        assert (await connection.answer())[0] == 200
    # A caller may have its answer before its permit is free.
    await until(lambda: (gw.plane.breaker.running, gw.plane.breaker.waiting) == (0, 0))


async def test_rejections_of_exposures_are_counted_apart(ready, client):
    """The alert on failed requests counts neither these nor what programs answer."""
    go_on, arrived = asyncio.Event(), asyncio.Event()

    async def behave(peer: Peer) -> None:
        while True:
            body = await peer.body(await peer.request())
            arrived.set()
            await go_on.wait()
            peer.answer(body)

    gw, _ = await ready(behave, limits=Limits(total=1))
    exposure = await gw.exposures.add("sb-1", "acme", 8000)
    one, two = await client(gw), await client(gw)
    one.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
    await arrived.wait()
    two.send("GET", exposure.path, body=None)
    assert (await asyncio.wait_for(two.answer(), 30))[0] == 503
    assert _rejections(gw) == {("expose", "gateway"): 1.0}
    go_on.set()
    assert (await one.answer())[0] == 200


def _rejections(gw) -> dict[tuple[str, str], float]:
    """How many there were, by route and scope."""
    (family,) = gw.metrics.rejected.collect()
    return {
        (one.labels["route"], one.labels["scope"]): one.value
        for one in family.samples
        if one.name.endswith("_total") and one.value
    }


async def test_one_tenants_commands_do_not_fill_the_gateway_for_another(ready, client):
    go_on = asyncio.Event()

    async def behave(peer: Peer) -> None:
        while True:
            body = await peer.body(await peer.request())
            await go_on.wait()
            peer.answer(body)

    gw, server = await ready(behave, limits=Limits(total=10))
    gw.route(server.address, sandbox_id="sb-2", tenant="other")
    asked = [("sb-1", "key-of-acme")] * 10 + [("sb-2", "key-of-other")]
    holding = [await client(gw) for _ in asked]
    for number, (connection, (box, key)) in enumerate(zip(holding, asked, strict=True)):
        connection.send("POST", f"/sbx/{box}/exec", body=b"{}", token=key)
        await until(lambda number=number: gw.plane.breaker.running == number + 1)
    for box, key in (asked[0], asked[-1]):
        extra = await client(gw)
        extra.send("POST", f"/sbx/{box}/exec", body=b"{}", token=key)
        status, _, body = await asyncio.wait_for(extra.answer(), 30)
        assert (status, b'"scope":"gateway"' in body) == (503, True), body
    go_on.set()
    for connection in holding:
        assert (await connection.answer())[0] == 200
    await until(lambda: gw.plane.breaker.running == 0)


async def _ask(connection, gw, method: str, path: str) -> int:
    connection.send(method, path, body=b"x", token=gw.token)
    return (await connection.answer())[0]


async def test_the_wait_in_the_queue_is_told_to_the_sidecar(ready, client):
    seen = []
    arrived = asyncio.Event()
    go_on = asyncio.Event()

    async def behave(peer: Peer) -> None:
        while True:
            request = await peer.request()
            seen.append(request)
            body = await peer.body(request)
            arrived.set()
            await go_on.wait()
            peer.answer(body)

    gw, _ = await ready(behave, limits=Limits(per_sandbox=1))
    one, two = await client(gw), await client(gw)
    one.send("POST", "/sbx/sb-1/exec", body=b"{}", headers=("x-sandlot-queued: 99",), token=gw.token)
    await arrived.wait()
    loop = asyncio.get_running_loop()
    waited_from = loop.time()
    two.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
    await until(lambda: gw.plane.breaker.waiting == 1)
    go_on.set()
    await one.answer()
    await two.answer()
    assert seen[0].header("x-sandlot-queued") is None
    queued = float(seen[1].header("x-sandlot-queued"))
    assert 0 <= queued <= loop.time() - waited_from + 5
