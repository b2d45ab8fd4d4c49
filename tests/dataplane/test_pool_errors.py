"""Errors of the HTTP client: what was sent is never sent again, and a bad request is not sent at all."""

from __future__ import annotations

import pytest
from sandlot_gateway.data.pool import UpstreamError

from tests.dataplane.pools import OK
from tests.dataplane.upstreams import Peer, echo


async def test_a_request_on_a_connection_that_has_just_gone_is_a_broken_connection(pool, upstream):
    server = await upstream(echo())
    one = pool()
    connection = await one.acquire(server.address)
    connection.transport.abort()
    connection.begin(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    with pytest.raises(UpstreamError):
        await connection.head()
    one.release(connection)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nha",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    ],
)
async def test_what_was_sent_is_never_sent_again(pool, upstream, answer):
    ran = 0

    async def behave(peer: Peer) -> None:
        nonlocal ran
        await peer.body(await peer.request())
        ran += 1
        peer.send(answer)
        await peer.writer.drain()

    server = await upstream(behave)
    with pytest.raises(UpstreamError) as error:
        await pool().fetch(server.address, "POST", "/", body=b"x")
    assert error.value.may_have_run is True
    assert (ran, server.connections) == (1, 1)


async def test_also_not_on_a_connection_that_was_kept(pool, upstream):
    ran = 0

    async def behave(peer: Peer) -> None:
        nonlocal ran
        await peer.body(await peer.request())
        peer.send(OK)
        await peer.body(await peer.request())
        ran += 1

    server = await upstream(behave)
    one = pool()
    await one.fetch(server.address, "GET", "/")
    with pytest.raises(UpstreamError):
        await one.fetch(server.address, "POST", "/", body=b"x")
    assert (ran, server.connections) == (1, 1)


async def test_a_slow_answer_times_out_and_its_connection_is_not_reused(pool, upstream):
    async def behave(peer: Peer) -> None:
        await peer.body(await peer.request())
        await peer.ended()

    server = await upstream(behave)
    one = pool()
    with pytest.raises(UpstreamError, match="within"):
        await one.fetch(server.address, "GET", "/slow", timeout=0.05)
    assert (one.idle_connections, one.busy_connections) == (0, 0)


async def test_an_answer_that_is_too_large_is_an_error(pool, upstream):
    async def behave(peer: Peer) -> None:
        await peer.body(await peer.request())
        peer.answer(b"x" * 5000)
        await peer.ended()

    server = await upstream(behave)
    with pytest.raises(UpstreamError, match="larger than 1000"):
        await pool(max_fetch=1000).fetch(server.address, "GET", "/")


@pytest.mark.parametrize(
    "request_",
    [
        {"method": "GET /", "target": "/"},
        {"method": "GET", "target": "/a b"},
        {"method": "GET", "target": "/\r\nx: y"},
        {"method": "GET", "target": ""},
        {"method": "GET", "target": "/", "headers": [("a\r\nb", "c")]},
        {"method": "GET", "target": "/", "headers": [("a", "b\nc")]},
    ],
)
async def test_a_request_that_would_break_its_line_is_not_sent(pool, upstream, request_):
    server = await upstream(echo())
    with pytest.raises(ValueError, match="not a"):
        await pool().fetch(server.address, **request_)
    assert server.connections == 0
