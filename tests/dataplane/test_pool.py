"""The HTTP client: what is kept and what is not, what is tried again and what never is."""

from __future__ import annotations

import asyncio
import socket
import sys

import pytest
from sandlot_gateway.data.conn import Connection
from sandlot_gateway.data.dial import DialSettings, dial, split_host_port
from sandlot_gateway.data.line import LineSettings
from sandlot_gateway.data.pool import DialError, HttpPool, PoolSettings, UpstreamError

from tests.dataplane.upstreams import Peer, Request, echo
from tests.ports import free_port
from tests.waiting import loop_turns, until

QUICK = DialSettings(timeout=0.3, first_timeout=0.1, backoff=0.001, max_backoff=0.01)
SHORT = LineSettings(refused_for=0.1, refused_for_others=0.01, silent_for=0.5, silent_for_others=0.2)


class Dials:
    def __init__(self) -> None:
        self.ok = 0
        self.failed = 0

    def dialled(self, *, ok: bool) -> None:
        if ok:
            self.ok += 1
        else:
            self.failed += 1


@pytest.fixture
def pool(stack):
    def make(**settings) -> HttpPool:
        pool = HttpPool(settings=PoolSettings(**{"dial": QUICK, "line": SHORT, **settings}))
        stack.push_async_callback(pool.close)
        return pool

    return make


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


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


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


async def test_idle_connections_expire_and_are_limited_per_host(pool, upstream):
    server = await upstream(echo())
    one = pool(idle_timeout=0.05, max_idle_per_host=2)
    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(one.fetch(server.address, "POST", "/", body=b"x"))
    assert server.connections > 2
    assert one.idle_connections == 2
    await asyncio.wait_for(server.closed_by_peer.wait(), 30)
    await until(lambda: one.idle_connections == 0)


async def test_a_connection_made_in_advance_waits_longer_than_others(pool, upstream):
    server, other = await upstream(echo(), tcp=True), await upstream(echo(), tcp=True)
    one = pool(idle_timeout=0.05)
    await one.prime(server.address)
    await one.prime(server.address)
    await one.fetch(other.address, "GET", "/")
    assert one.idle_connections == 2
    await until(lambda: one.idle_connections == 1)
    await one.fetch(server.address, "GET", "/")
    assert server.connections == 1
    await until(lambda: one.idle_connections == 0)  # from its first use on it is one of many


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
    one = HttpPool(observer=dials)
    stack.push_async_callback(one.close)
    fetching = asyncio.create_task(one.fetch(f"unix:{path}", "POST", "/", body=b"hi", known_alive=True))
    await until(lambda: dials.failed == 3)
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
        with pytest.raises(DialError, match=r"\(its backlog of connections is full\)$"):
            await pool().fetch(f"unix:{tmp_path}/full.sock", "GET", "/")
        dials = Dials()
        slow = HttpPool(observer=dials)
        stack.push_async_callback(slow.close)
        fetching = asyncio.create_task(slow.fetch(f"unix:{tmp_path}/full.sock", "GET", "/"))
        await until(lambda: dials.failed == 2)
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


def test_a_lost_first_packet_costs_less_than_the_kernels_second():
    settings = DialSettings(timeout=2.0, first_timeout=0.25)
    assert [settings.timeout_of(timeouts) for timeouts in (0, 1, 2, 3, 999)] == [0.25, 0.75, 2.0, 2.0, 2.0]


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
        return await dial(address, timeout=1.0)


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
        connection = await dial(server.address, timeout=1.0)
        connection.transport.abort()
        return connection

    with pytest.raises(DialError, match="before it was used"):
        await one.acquire(server.address, over)
    assert (one.busy_connections, one.idle_connections) == (0, 0)


async def test_a_request_on_a_connection_that_has_just_gone_is_a_broken_connection(pool, upstream):
    server = await upstream(echo())
    one = pool()
    connection = await one.acquire(server.address)
    connection.transport.abort()
    connection.begin(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    with pytest.raises(UpstreamError):
        await connection.head()
    one.release(connection)


_DIAL = """
import asyncio, os, sys, uvloop
from sandlot_gateway.data.dial import dial

async def main():
    connection = await dial(sys.argv[1], timeout=10.0)
    connection.close()
    print(len(os.listdir("/proc/self/task")))

uvloop.run(main())
"""


async def test_a_dial_of_an_address_needs_no_thread(upstream):
    """Threads that wait for a name server would keep it waiting. In a process of its own: threads stay."""
    server = await upstream(echo(), tcp=True)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _DIAL, server.address, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    assert told == b"1\n"


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


def test_addresses():
    assert split_host_port("10.0.0.7:8700") == ("10.0.0.7", 8700)
    assert split_host_port("[::1]:8700") == ("::1", 8700)
    for wrong in ("10.0.0.7", "::1:8700", "host:", "host:0", "host:70000", ":80", "host:8o", "host:٣"):
        with pytest.raises(ValueError, match="not an address"):
            split_host_port(wrong)


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
