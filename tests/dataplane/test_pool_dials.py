"""New connections of the HTTP client: dialled again where nothing was sent, shared by those who wait."""

from __future__ import annotations

import asyncio
import socket

import pytest
from sandlot_gateway.data.conn import Connection
from sandlot_gateway.data.connection_queue import ConnectionQueueSettings
from sandlot_gateway.data.dial import dial
from sandlot_gateway.data.pool import DialError, HttpPool, PoolSettings

from tests.dataplane.pools import OK, QUICK, SHORT, Dials
from tests.dataplane.upstreams import Peer, echo
from tests.ports import free_port
from tests.waiting import loop_turns, until

# As the gateway's own, but for how long a machine may take until the other end is there.
PATIENT = ConnectionQueueSettings(refused_for=60.0, silent_for_others=60.0)


async def test_a_refused_dial_is_tried_again_and_nothing_was_sent(tmp_path, pool):
    port = free_port()
    for address in (f"127.0.0.1:{port}", f"[::1]:{port}", f"unix:{tmp_path}/none.sock"):
        with pytest.raises(DialError) as error:
            await pool().fetch(address, "POST", "/", body=b"x")
        assert error.value.may_have_run is False
        assert address in str(error.value)


async def test_a_dial_that_succeeds_late_is_a_success(pool, upstream, tmp_path, stack):
    path = tmp_path / "late.sock"
    dials = Dials()
    one = HttpPool(settings=PoolSettings(line=PATIENT), observer=dials)
    stack.push_async_callback(one.close)
    fetching = asyncio.create_task(one.fetch(f"unix:{path}", "POST", "/", body=b"hi", known_alive=True))
    await until(lambda: dials.failed >= 3)
    server = await upstream(echo())
    path.symlink_to(server.address.removeprefix("unix:"))
    assert (await fetching).body == b"hi"


async def test_a_full_backlog_is_waited_for(pool, tmp_path, stack):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "full.sock"))
    listener.listen(0)
    fillers = []
    try:
        while True:
            filler = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            fillers.append(filler)
            filler.connect(str(tmp_path / "full.sock"))
    except BlockingIOError:
        pass
    try:
        with pytest.raises(DialError, match=r"\(its listen backlog is full\)$"):
            await pool().fetch(f"unix:{tmp_path}/full.sock", "GET", "/")
        dials = Dials()
        slow = HttpPool(settings=PoolSettings(line=PATIENT), observer=dials)
        stack.push_async_callback(slow.close)
        fetching = asyncio.create_task(slow.fetch(f"unix:{tmp_path}/full.sock", "GET", "/"))
        await until(lambda: dials.failed >= 2)
        server = await asyncio.start_unix_server(_answer_ok, sock=listener)
        assert (await fetching).body == b"ok"
        server.close()
    finally:
        for sock in (*fillers, listener):
            sock.close()


async def _answer_ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await reader.read()
    except asyncio.IncompleteReadError:
        pass
    finally:
        writer.close()


class Dialling:
    """Dials of a test's choice: each waits until it is let go."""

    def __init__(self, *addresses: str | None) -> None:
        """None: one that fails."""
        self._addresses = iter(addresses)
        self.let_go: list[asyncio.Event] = []

    async def __call__(self) -> Connection:
        address = next(self._addresses)
        go = asyncio.Event()
        self.let_go.append(go)
        await go.wait()
        if address is None:
            raise DialError("nowhere", "refused", final=True)
        return await dial(address, timeout=10.0)


async def test_who_waits_for_a_new_connection_gets_one_that_is_given_back(pool, upstream):
    answer = asyncio.Event()

    async def behave(peer: Peer) -> None:
        while True:
            await peer.body(await peer.request())
            await answer.wait()
            peer.send(OK)

    server = await upstream(behave)
    one = pool()
    dialling = Dialling(server.address)
    fetching = asyncio.create_task(one.fetch(server.address, "GET", "/"))
    await until(lambda: server.connections == 1)
    waiting = asyncio.create_task(one.acquire(server.address, dialling))
    await until(lambda: len(dialling.let_go) == 1)
    answer.set()
    await fetching
    connection = await waiting
    assert (server.connections, one.busy_connections, one.idle_connections) == (1, 1, 0)
    one.release(connection)
    dialling.let_go[0].set()
    await until(lambda: one.idle_connections == 2)  # what was dialled is there for the next
    assert (await one.fetch(server.address, "GET", "/")).body == b"ok"
    assert (server.connections, one.busy_connections, one.idle_connections) == (2, 0, 2)


async def test_of_two_that_wait_one_gets_what_was_dialled_first_and_one_the_failure(pool, upstream):
    server = await upstream(echo())
    one = pool()
    dialling = Dialling(None, server.address)
    waiting = [asyncio.create_task(one.acquire(server.address, dialling)) for _ in range(2)]
    await until(lambda: len(dialling.let_go) == 2)
    dialling.let_go[1].set()
    connection = await waiting[0]
    dialling.let_go[0].set()
    with pytest.raises(DialError, match="refused"):
        await waiting[1]
    one.release(connection, reusable=False)
    assert (one.busy_connections, one.idle_connections) == (0, 0)


async def test_what_was_dialled_for_one_that_has_gone_is_kept(pool, upstream):
    server = await upstream(echo())
    one = pool()
    dialling = Dialling(server.address)
    gone = asyncio.create_task(one.acquire(server.address, dialling))
    await until(lambda: len(dialling.let_go) == 1)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    dialling.let_go[0].set()
    await until(lambda: one.idle_connections == 1)
    assert (await one.fetch(server.address, "GET", "/")).body == b""
    assert server.connections == 1


async def test_a_connection_that_is_over_before_it_is_used_is_a_failed_dial(pool, upstream):
    server = await upstream(echo())
    one = pool()

    async def over() -> Connection:
        connection = await dial(server.address, timeout=10.0)
        connection.transport.abort()
        return connection

    with pytest.raises(DialError, match="before it was used"):
        await one.acquire(server.address, over)
    assert (one.busy_connections, one.idle_connections) == (0, 0)


async def test_closing_the_pool_ends_the_dials_under_way(pool):
    one = pool()
    dialling = Dialling(None, None)
    waiting = [asyncio.create_task(one.acquire("unix:/nowhere", dialling)) for _ in range(2)]
    await until(lambda: len(dialling.let_go) == 2)
    not_begun = asyncio.create_task(one.acquire("unix:/nowhere", dialling))
    await loop_turns()
    await one.close()
    for task in (*waiting, not_begun):
        with pytest.raises(DialError, match="closed"):
            await task


async def test_dials_are_counted(upstream, stack, tmp_path):
    server = await upstream(echo())
    dials = Dials()
    one = HttpPool(settings=PoolSettings(dial=QUICK, line=SHORT), observer=dials)
    stack.push_async_callback(one.close)
    await one.fetch(server.address, "GET", "/")
    await one.fetch(server.address, "GET", "/")
    with pytest.raises(DialError):
        await one.fetch(f"unix:{tmp_path}/none", "GET", "/")
    assert dials.ok == 1
    assert dials.failed >= 2
