"""The lines of the upstreams with dials of a test's choice: who is served, who is told what, what is tried again."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sandlot_gateway.data import lines as lines_module
from sandlot_gateway.data.conn import Connection
from sandlot_gateway.data.dial import DialSettings, addresses_of, dial, split_host_port
from sandlot_gateway.data.errors import DialError
from sandlot_gateway.data.line import LineSettings
from sandlot_gateway.data.lines import Lines

from tests.dataplane.slow import SlowUpstream
from tests.dataplane.upstreams import echo
from tests.waiting import loop_turns, until

QUICK = DialSettings(timeout=1.0, first_timeout=0.125, backoff=0.001, max_backoff=0.002)
KEY = "10.0.0.7:8700"


class Owner:
    """What the pool does with its lines: it counts, and keeps what nobody waits for."""

    def __init__(self, **settings: float) -> None:
        self.kept: list[Connection] = []
        self.dialled: list[bool] = []
        self.lines = Lines(
            settings=LineSettings(**settings),  # type: ignore[arg-type]
            dialling=QUICK,
            free=self.free,
            dialled=self.dialled.append,
        )

    def free(self, connection: Connection) -> None:
        if not self.lines.serve(connection):
            self.kept.append(connection)

    def wait(self, dial_with: Callable[[], Awaitable[Connection]], *, known_alive: bool = True):
        return asyncio.create_task(self.lines.wait(KEY, dial_with, known_alive=known_alive))


@pytest.fixture
def owner(stack):
    def make(**settings: float) -> Owner:
        one = Owner(**settings)
        stack.push_async_callback(one.lines.close)
        stack.callback(lambda: [connection.close() for connection in one.kept])
        return one

    return make


class Script:
    """Dials of which each does the next of these: connects, or raises."""

    def __init__(self, *ends: str | Exception) -> None:
        self.ends = list(ends)
        self.made = 0

    async def __call__(self) -> Connection:
        end = self.ends[min(self.made, len(self.ends) - 1)]
        self.made += 1
        if isinstance(end, Exception):
            raise end
        return await dial(end, timeout=10.0)


def refused() -> DialError:
    return DialError(KEY, "connection refused", refused=True)


async def test_what_is_dialled_goes_to_the_first_and_is_a_sign_of_life(owner, upstream):
    server = await upstream(echo())
    one = owner()
    connection = await one.wait(Script(server.address))
    assert connection.address == KEY
    assert one.dialled == [True]
    error = one.lines.none_within(KEY, 0.5)
    assert str(error).startswith(
        f"cannot connect to {KEY}: no connection within 0.5 s; it is slow, not dead: last sign of life 0."
    )
    assert error.peer == "slow"
    assert one.lines.forget_old() is True
    connection.close()


async def test_nothing_is_known_of_an_upstream_that_never_answered(owner):
    one = owner(silent_for=0.0)
    assert one.lines.forget_old() is False
    error = one.lines.none_within(KEY, 2)
    assert (error.address, error.peer) == (KEY, "silent")
    assert error.reason == "no connection within 2 s; it is silent, no sign of life came from it"
    one.lines.heard(KEY)
    error = one.lines.none_within(KEY, 2)
    assert (error.address, error.peer) == (KEY, "silent")
    assert error.reason == "no connection within 2 s; it is silent since 0 s"
    assert one.lines.forget_old() is False
    assert "no sign of life" in one.lines.none_within(KEY, 2).reason


async def test_who_is_told_too_early_hears_why_the_last_attempt_failed(owner):
    one = owner()
    one.lines.heard(KEY)
    waiting = one.wait(Script(DialError(KEY, "its backlog is full")))
    await until(lambda: len(one.dialled) >= 3)
    error = one.lines.none_within(KEY, 1)
    assert error.reason.endswith(" s ago (its backlog is full)")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_an_attempt_that_fails_is_made_again_and_each_is_longer(owner, upstream, monkeypatch):
    server = await upstream(echo())
    timeouts: list[float] = []

    async def attempt(address: str, *, timeout: float) -> Connection:
        assert address == KEY
        timeouts.append(timeout)
        if len(timeouts) == 4:
            raise refused()
        if len(timeouts) < 6:
            raise DialError(address, "no answer")
        return await dial(server.address, timeout=10.0)

    monkeypatch.setattr(lines_module, "dial", attempt)
    one = owner()
    connection = await one.wait(None)  # type: ignore[arg-type]
    assert timeouts == [0.125, 0.375, 1.0, 1.0, 0.125, 0.375]
    assert one.dialled == [False] * 5 + [True]
    connection.close()


async def test_failures_in_a_row_count_for_the_pause_and_a_success_ends_the_row(owner, upstream, monkeypatch):
    server = await upstream(echo())
    counted: list[int] = []

    def no_pause(_settings: DialSettings, failures: int) -> float:
        counted.append(failures)
        return 0.0

    monkeypatch.setattr(DialSettings, "pause_after", no_pause)
    one = owner(max_dials=1)
    script = Script(refused(), refused(), refused(), server.address, refused(), server.address)
    waiting = [one.wait(script) for _ in range(2)]
    for connection in await asyncio.gather(*waiting):
        connection.close()
    assert counted == [1, 2, 3, 1]


@pytest.mark.parametrize("known_alive", [True, False])
async def test_a_refusal_is_told_after_its_time_as_it_was(owner, known_alive):
    one = owner(refused_for=0.02 if known_alive else 60.0, refused_for_others=60.0 if known_alive else 0.02)
    assert one.lines.refused_for(known_alive=known_alive) == 0.02
    with pytest.raises(DialError) as caught:
        await one.wait(Script(refused()), known_alive=known_alive)
    assert (caught.value.reason, caught.value.peer) == ("connection refused", "refusing")
    assert len(one.dialled) > 1
    assert not any(one.dialled)


@pytest.mark.parametrize("known_alive", [True, False])
async def test_silence_is_told_after_its_time_as_what_it_is(owner, known_alive):
    one = owner(silent_for=0.02 if known_alive else 60.0, silent_for_others=60.0 if known_alive else 0.02)
    with pytest.raises(DialError) as caught:
        await one.wait(Script(DialError(KEY, "no answer")), known_alive=known_alive)
    assert (caught.value.address, caught.value.peer) == (KEY, "silent")
    assert caught.value.reason == "it is silent, no sign of life came from it (no answer)"


async def test_an_upstream_that_is_heard_of_is_tried_for_as_long_as_it_is(owner, upstream):
    """Its dials fail for longer than silence is borne, and a heartbeat came before each."""
    server = await upstream(echo())
    one = owner(silent_for=0.2)
    began = time.monotonic()

    async def slow() -> Connection:
        if time.monotonic() - began < 0.3:
            one.lines.heard(KEY)
            raise DialError(KEY, "no answer")
        return await dial(server.address, timeout=10.0)

    connection = await one.wait(slow)
    assert one.dialled[-1] is True
    connection.close()


@pytest.mark.parametrize("silent_for", [120.0, 0.0])
async def test_what_no_other_attempt_can_change_is_told_to_all_at_once(owner, silent_for):
    """Also to those whose time is over with that attempt."""
    one = owner(silent_for=silent_for)
    script = Script(DialError(KEY, "not an address", final=True))
    waiting = [one.wait(script) for _ in range(3)]
    for task in waiting:
        with pytest.raises(DialError) as caught:
            await task
        assert caught.value.reason == "not an address"
    assert not any(one.dialled)


async def test_a_defect_of_a_dial_is_told_and_nobody_waits_for_ever(owner):
    one = owner()
    with pytest.raises(DialError) as caught:
        await one.wait(Script(ValueError("a defect")))
    assert (caught.value.address, caught.value.reason, caught.value.final) == (
        KEY,
        "ValueError: a defect",
        True,
    )
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a_connection_that_is_over_already_is_a_refusal(owner, upstream):
    server = await upstream(echo())

    async def over() -> Connection:
        connection = await dial(server.address, timeout=10.0)
        connection.transport.abort()
        return connection

    one = owner(refused_for=0.0)
    with pytest.raises(DialError) as caught:
        await one.wait(over)
    assert (caught.value.address, caught.value.refused) == (KEY, True)
    assert caught.value.reason == "closed by its other end before it was used"


async def test_who_has_gone_when_its_connection_comes_leaves_it_to_the_next(owner, upstream):
    server = await upstream(echo())
    one = owner(max_dials=1)
    go = asyncio.Event()

    async def later() -> Connection:
        await go.wait()
        return await dial(server.address, timeout=10.0)

    first, second = one.wait(later), one.wait(later)
    await asyncio.sleep(0)
    connection = await dial(server.address, timeout=10.0)
    connection.address = KEY
    assert one.lines.serve(connection) is True
    first.cancel()  # it was served, and had no time to see it
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second is connection
    connection.close()
    assert one.lines.serve(connection) is False
    go.set()
    await until(lambda: len(one.kept) == 1)


async def test_who_has_gone_when_its_failure_comes_is_cancelled(owner):
    async def never() -> Connection:
        return await asyncio.get_running_loop().create_future()

    one = owner()
    waiting = one.wait(never)
    await loop_turns()
    one.lines.dismiss(KEY, "it has ended")
    waiting.cancel()  # it was told, and had no time to see it
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_nothing_is_kept_of_a_dial_that_is_over(owner, upstream):
    """A gateway that lives for months makes millions."""
    server = await upstream(echo())
    one = owner()
    connection = await one.wait(Script(server.address))
    await loop_turns(3)
    assert not one.lines._dials
    assert not one.lines._lines
    connection.close()


async def test_who_waits_for_an_upstream_that_has_ended_is_told_and_its_dials_end(owner):
    one = owner()
    one.lines.heard(KEY)
    begun: list[bool] = []
    ended: list[bool] = []

    async def never() -> Connection:
        begun.append(True)
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            ended.append(True)

    other = asyncio.create_task(one.lines.wait("10.0.0.8:8700", never, known_alive=True))
    waiting = [one.wait(never) for _ in range(2)]
    await until(lambda: len(begun) == 3)
    one.lines.dismiss(KEY, "it has ended")
    for task in waiting:
        with pytest.raises(DialError) as caught:
            await task
        assert (caught.value.address, caught.value.reason, caught.value.peer) == (
            KEY,
            "it has ended",
            "ended",
        )
    await until(lambda: len(ended) >= 2)
    assert "no sign of life" in one.lines.none_within(KEY, 1).reason  # another may get its address
    assert not other.done()
    await one.lines.close()
    with pytest.raises(DialError, match=r"10\.0\.0\.8:8700: the pool is closed"):
        await other
    one.lines.dismiss(KEY, "again")


def test_pauses_double_up_to_their_most_and_spread_by_half():
    settings = DialSettings(backoff=1.0, max_backoff=5.0)
    for failures, middle in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 5.0), (1000, 5.0)):
        pauses = [settings.pause_after(failures) for _ in range(500)]
        assert 0.5 * middle <= min(pauses) < 0.6 * middle
        assert 1.4 * middle < max(pauses) <= 1.5 * middle


@pytest.mark.parametrize(
    ("address", "refused", "reason"),
    [("127.0.0.1:1", True, "connection refused"), ("unix:/nowhere/none", True, "no such file or directory")],
)
async def test_where_nothing_listens_a_dial_is_refused(address, refused, reason):
    with pytest.raises(DialError) as caught:
        await dial(address, timeout=10.0)
    error = caught.value
    assert (error.address, error.reason, error.refused, error.final) == (address, reason, refused, False)


async def answer_of(connection: Connection) -> bytes:
    """To a request that its server echoes."""
    connection.begin(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello")
    await connection.head()
    body = await connection.read()
    connection.close()
    return body


def no_resolver(*_args: object, **_options: object) -> list[object]:
    raise AssertionError("the resolver was asked for an address")


@pytest.mark.parametrize("kind", ["unix", "127.0.0.1", "::1"])
async def test_a_dial_of_an_address_connects_and_asks_no_resolver(upstream, monkeypatch, kind):
    server = await upstream(echo(), tcp=kind != "unix", host=kind)
    monkeypatch.setattr(socket, "getaddrinfo", no_resolver)
    connection = await dial(server.address, timeout=10.0)
    assert connection.address == server.address
    assert await answer_of(connection) == b"hello"


async def test_a_dial_of_a_name_connects_to_its_address(upstream):
    server = await upstream(echo(), tcp=True)
    port = server.address.rpartition(":")[2]
    connection = await dial(f"localhost:{port}", timeout=10.0)
    assert connection.address == f"localhost:{port}"
    assert await answer_of(connection) == b"hello"


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (PermissionError(errno.EPERM, "of a packet filter"), ": operation not permitted"),
    ],
)
async def test_a_name_that_cannot_be_resolved_is_told_in_the_systems_words(monkeypatch, problem, reason):
    def unknown(*_args: object, **_options: object) -> list[object]:
        raise problem

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(DialError, match=f"{reason}$") as caught:
        await dial("nowhere.example:80", timeout=10.0)
    assert (caught.value.refused, caught.value.final) == (False, False)
    with pytest.raises(type(problem)):
        await addresses_of("nowhere.example", 80)


async def test_a_name_is_resolved_while_all_the_loops_own_threads_are_busy(upstream):
    server = await upstream(echo(), tcp=True)
    port = server.address.rpartition(":")[2]
    loop = asyncio.get_running_loop()
    go_on = threading.Event()
    with ThreadPoolExecutor(1) as one:
        loop.set_default_executor(one)
        busy = loop.run_in_executor(None, go_on.wait)
        try:
            connection = await asyncio.wait_for(dial(f"localhost:{port}", timeout=10.0), 10.0)
        finally:
            go_on.set()
        await busy
    assert await answer_of(connection) == b"hello"


async def test_every_address_of_a_name_is_told_once_in_the_form_of_a_dial(monkeypatch):
    asked: list[tuple[str, int]] = []

    def several(host: str, port: int, *, type: int) -> list[object]:
        asked.append((host, port))
        assert type == socket.SOCK_STREAM  # else each address comes once for every kind of socket
        four = (socket.AF_INET, type, 6, "", ("10.0.0.7", port))
        six = (socket.AF_INET6, type, 6, "", ("fe80::7", port, 0, 0))
        return [four, six, four]

    monkeypatch.setattr(socket, "getaddrinfo", several)
    assert await addresses_of("peers.example", 8700) == ["10.0.0.7:8700", "[fe80::7]:8700"]
    assert asked == [("peers.example", 8700)]
    assert await addresses_of("10.0.0.8", 8700) == ["10.0.0.8:8700"]
    assert await addresses_of("fe80::8", 8700) == ["[fe80::8]:8700"]
    assert len(asked) == 1


async def test_an_attempt_that_gets_no_answer_ends_after_its_time(stack):
    server = SlowUpstream(echo())
    stack.push_async_callback(server.close)
    began = time.monotonic()
    with pytest.raises(DialError) as caught:
        await dial(server.address, timeout=0.1)
    assert time.monotonic() - began >= 0.09  # the loop counts in milliseconds
    assert (caught.value.reason, caught.value.refused) == ("no answer to the connection attempt", False)


async def test_a_dial_that_is_cancelled_leaves_nothing_behind(stack):
    """The check after each test looks for its socket."""
    server = SlowUpstream(echo())
    stack.push_async_callback(server.close)
    dialling = asyncio.create_task(dial(server.address, timeout=60.0))
    await loop_turns(3)
    dialling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dialling


@pytest.mark.parametrize("wrong", ["10.0.0.7", "10.0.0.7:0", "10.0.0.7:65536"])
async def test_what_is_no_address_is_dialled_once(wrong):
    with pytest.raises(DialError, match="not an address: ") as caught:
        await dial(wrong, timeout=10.0)
    assert (caught.value.address, caught.value.final) == (wrong, True)


def test_ports_have_bounds_and_ipv6_has_brackets():
    assert split_host_port("host:1") == ("host", 1)
    assert split_host_port("host:65535") == ("host", 65535)
    with pytest.raises(ValueError, match=r"^not an address \(IPv6 needs brackets\): '::1:8700'$"):
        split_host_port("::1:8700")
    assert split_host_port("[fe80::12]:8700") == ("fe80::12", 8700)
    for wrong in ("host", "8700", "host:8o", "host:٣", "host:", "host:-1"):
        with pytest.raises(ValueError, match=f"^not an address: '{wrong}'$"):
            split_host_port(wrong)
    for half in ("[::1:8700", "::1]:8700"):
        with pytest.raises(ValueError, match="brackets"):
            split_host_port(half)
