"""The HTTP client: which connections it keeps and uses again, and how it ends what is under way."""

from __future__ import annotations

import asyncio
import socket

import pytest
from sandlot_gateway.data.pool import DialError, UpstreamError

from tests.dataplane.pools import OK
from tests.dataplane.upstreams import Peer, Request, echo
from tests.waiting import until


def answering(*answers: bytes):
    """One connection: each request gets the next of the raw answers, then the connection is closed."""

    async def behave(peer: Peer) -> None:
        for answer in answers:
            await peer.body(await peer.request())
            peer.send(answer)
        await peer.writer.drain()
        peer.writer.close()
        await peer.writer.wait_closed()

    return behave


@pytest.mark.parametrize("kind", ["unix", "127.0.0.1", "::1"])
async def test_fetch_over_one_kept_connection(pool, upstream, kind):
    requests: list[Request] = []
    server = await upstream(echo(requests), tcp=kind != "unix", host=kind)
    one = pool()
    for n in range(5):
        answer = await one.fetch(server.address, "POST", f"/x?n={n}", headers=[("X-A", "b")], body=b"%d" % n)
        assert (answer.status, answer.body) == (200, b"%d" % n)
    assert server.connections == 1
    assert [request.target for request in requests] == [f"/x?n={n}" for n in range(5)]
    assert requests[0].header("x-a") == "b"
    assert requests[0].header("host") == ("sidecar" if kind == "unix" else server.address)
    assert (one.idle_connections, one.busy_connections) == (1, 0)


async def test_a_tcp_connection_does_not_wait_for_more_bytes(pool, upstream):
    server = await upstream(echo(), tcp=True)
    connection = await pool().acquire(server.address)
    assert connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    connection.close()


@pytest.mark.parametrize(
    ("method", "answer", "body"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", b""),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        ("GET", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", b""),
        (
            "GET",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
            b"ab",
        ),
    ],
)
async def test_odd_framings_leave_the_connection_usable(pool, upstream, method, answer, body):
    server = await upstream(answering(answer, OK))
    one = pool()
    assert (await one.fetch(server.address, method, "/")).body == body
    assert (await one.fetch(server.address, "GET", "/")).body == b"ok"
    assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        OK + b"and more than was announced",
    ],
)
async def test_a_connection_that_cannot_be_trusted_is_not_kept(pool, upstream, answer):
    server = await upstream(answering(answer))
    one = pool()
    for _ in range(2):
        assert (await one.fetch(server.address, "GET", "/")).body == b"ok"
        assert one.idle_connections == 0
    assert server.connections == 2


async def test_a_connection_that_closed_while_idle_is_never_used_again(pool, upstream):
    """The close is in the kernel before the loop has looked: the next request must not be lost on it."""
    ran = 0
    closed = asyncio.Event()

    async def behave(peer: Peer) -> None:
        nonlocal ran
        await peer.body(await peer.request())
        ran += 1
        peer.send(OK)
        await peer.writer.drain()
        closed.set()  # and the end of this function closes it

    server = await upstream(behave)
    one = pool()
    for n in range(20):
        closed.clear()
        assert (await one.fetch(server.address, "POST", "/", body=b"x")).status == 200
        await closed.wait()
        assert ran == n + 1


async def test_bytes_on_an_idle_connection_end_it(pool, upstream):
    speak = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.body(await peer.request())
        peer.send(OK)
        await speak.wait()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged")
        await peer.ended()

    server = await upstream(behave)
    one = pool()
    await one.fetch(server.address, "GET", "/")
    assert one.idle_connections == 1
    speak.set()
    await until(lambda: one.idle_connections == 0)
    assert (await one.fetch(server.address, "GET", "/")).body == b"ok"
    assert server.connections == 2


async def test_idle_connections_expire(pool, upstream):
    server = await upstream(echo())
    one = pool(idle_timeout=0.05)
    await one.fetch(server.address, "GET", "/")
    await asyncio.wait_for(server.closed_by_peer.wait(), 30)
    await until(lambda: one.idle_connections == 0)


async def test_idle_connections_are_limited_per_host(pool, upstream):
    server = await upstream(echo())
    one = pool(max_idle_per_host=2)
    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(one.fetch(server.address, "POST", "/", body=b"x"))
    assert server.connections > 2
    assert one.idle_connections == 2


async def test_a_connection_made_in_advance_waits_longer_than_others(pool, upstream):
    server, other = await upstream(echo(), tcp=True), await upstream(echo(), tcp=True)
    one = pool(idle_timeout=1.0)  # longer than a loaded machine takes to look at both
    await one.prime(server.address)
    await one.prime(server.address)
    await one.fetch(other.address, "GET", "/")
    assert one.idle_connections == 2
    await until(lambda: one.idle_connections == 1)
    await one.fetch(server.address, "GET", "/")
    assert server.connections == 1
    await until(lambda: one.idle_connections == 0)  # from its first use on it is one of many


async def test_closing_the_pool_ends_what_is_under_way(pool, upstream):
    arrived = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.body(await peer.request())
        arrived.set()
        await peer.ended()

    server = await upstream(behave)
    one = pool()
    fetching = asyncio.create_task(one.fetch(server.address, "GET", "/"))
    await arrived.wait()
    await one.close()
    with pytest.raises(UpstreamError):
        await fetching
    with pytest.raises(DialError, match="closed"):
        await one.fetch(server.address, "GET", "/")


async def test_cutting_a_key_ends_what_is_under_way_there_and_nowhere_else(pool, upstream):
    arrived, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.body(await peer.request())
        arrived.release()
        await go_on.wait()
        peer.send(OK)
        await peer.ended()

    lost, other = await upstream(behave), await upstream(behave)
    one = pool()
    fetches = [asyncio.create_task(one.fetch(server.address, "GET", "/")) for server in (lost, other)]
    for _ in fetches:
        await arrived.acquire()
    one.cut(lost.address)
    with pytest.raises(UpstreamError):
        await fetches[0]
    go_on.set()
    assert (await fetches[1]).body == b"ok"


async def test_a_peer_whose_machine_is_gone_is_noticed_by_the_kernel(pool, upstream):
    server = await upstream(echo([]), tcp=True, host="127.0.0.1")
    one = pool()
    connection = await one.acquire(server.address)
    try:
        get = connection.sock.getsockopt
        assert get(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        waits = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT]
        idle, interval, count = (get(socket.IPPROTO_TCP, name) for name in waits)
        assert idle + interval * count == 30
    finally:
        one.release(connection)


async def test_cancelling_a_fetch_closes_its_connection(pool, upstream):
    arrived = asyncio.Event()
    left = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.body(await peer.request())
        arrived.set()
        await peer.ended()
        left.set()

    server = await upstream(behave)
    one = pool()
    fetching = asyncio.create_task(one.fetch(server.address, "GET", "/"))
    await arrived.wait()
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    await asyncio.wait_for(left.wait(), 30)
    assert one.busy_connections == 0
