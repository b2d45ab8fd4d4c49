"""A client or a sidecar goes away: the other side learns it at once, and nothing runs twice."""

from __future__ import annotations

import asyncio

import pytest
from sandlot_gateway.data.breaker import Limits

from tests.dataplane.upstreams import Peer
from tests.waiting import until


@pytest.mark.parametrize("moment", ["before the answer", "inside the answer", "inside the request"])
async def test_a_client_that_leaves_closes_the_sidecars_connection_at_once(ready, client, moment):
    arrived = asyncio.Event()
    left = asyncio.Event()

    async def behave(peer: Peer) -> None:
        request = await peer.request()
        if moment == "inside the answer":
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nsome")
        arrived.set()
        await peer.ended()
        assert request.method == "POST"
        left.set()

    gw, _ = await ready(behave)
    connection = await client(gw)
    if moment == "inside the request":
        connection.send(
            "POST", "/sbx/sb-1/upload", body=None, headers=("content-length: 100",), token=gw.token
        )
        connection.writer.write(b"some")
    else:
        connection.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
    await arrived.wait()
    if moment == "inside the answer":
        await connection.head()
    await connection.close()
    await asyncio.wait_for(left.wait(), 30)
    await until(lambda: 'sandlot_requests_total{code="gone"' in gw.metrics.text().decode())
    assert gw.pool.busy_connections == 0
    assert gw.plane.breaker.running == 0


async def test_a_client_that_leaves_the_queue_never_reaches_the_sidecar(ready, client):
    arrived = asyncio.Event()
    go_on = asyncio.Event()
    ran: list[bytes] = []

    async def behave(peer: Peer) -> None:
        while True:
            ran.append(await peer.body(await peer.request()))
            arrived.set()
            await go_on.wait()
            peer.answer(b"ok")

    gw, _ = await ready(behave, limits=Limits(per_sandbox=1))
    first, second, third = [await client(gw) for _ in range(3)]
    first.send("POST", "/sbx/sb-1/exec", body=b"first", token=gw.token)
    await arrived.wait()
    second.send("POST", "/sbx/sb-1/exec", body=b"second", token=gw.token)
    await until(lambda: gw.plane.breaker.waiting == 1)
    third.send("POST", "/sbx/sb-1/exec", body=b"third", token=gw.token)
    await until(lambda: gw.plane.breaker.waiting == 2)
    await second.close()
    await until(lambda: gw.plane.breaker.waiting == 1)
    go_on.set()
    assert (await first.answer())[0] == 200
    assert (await third.answer())[0] == 200
    assert ran == [b"first", b"third"]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (b"", "502"),
        (b"HTTP/1.1 200 OK\r\nx-half: ", "502"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", "cut"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", "cut"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n", "cut"),
    ],
)
async def test_a_sidecar_that_dies_is_never_taken_for_an_answer(ready, client, answer, outcome):
    ran = 0

    async def behave(peer: Peer) -> None:
        nonlocal ran
        await peer.body(await peer.request())
        ran += 1
        peer.send(answer)
        await peer.writer.drain()

    gw, server = await ready(behave)
    connection = await client(gw)
    connection.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
    if outcome == "502":
        status, _, body = await connection.answer()
        assert status == 502
        assert b'"error":"sidecar_lost"' in body
        assert b'"may_have_run":true' in body
    else:
        with pytest.raises(asyncio.IncompleteReadError):
            await connection.answer()
    assert (ran, server.connections) == (1, 1)


async def test_a_sidecar_that_cannot_be_reached_ran_nothing(gateway, client, tmp_path):
    gw = await gateway()
    gw.route(f"unix:{tmp_path}/none.sock")
    connection = await client(gw)
    connection.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
    status, _, body = await connection.answer()
    assert status == 502
    assert b'"error":"sidecar_unreachable"' in body
    assert b'"may_have_run":false' in body


async def test_a_sidecar_lost_because_its_sandbox_ended_says_so(ready, client):
    async def behave(peer: Peer) -> None:
        await peer.body(await peer.request())
        gw.route("unix:/gone", status="TIMEOUT", verdict="deadline", message="its time was over")

    gw, _ = await ready(behave)
    connection = await client(gw)
    connection.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
    status, headers, body = await connection.answer()
    assert (status, headers["x-sandlot-verdict"]) == (502, "deadline")
    assert b'"error":"sandbox_not_found"' in body
    assert b'"may_have_run":true' in body
