"""One dial: addresses and names, how it is refused or ends without an answer, and what it leaves behind."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sandlot_gateway.data.conn import Connection
from sandlot_gateway.data.dial import DialSettings, addresses_of, dial, split_host_port
from sandlot_gateway.data.errors import DialError

from tests.dataplane.slow import SlowUpstream
from tests.dataplane.upstreams import echo
from tests.waiting import loop_turns


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


def test_a_lost_first_packet_costs_less_than_the_kernels_second():
    settings = DialSettings(timeout=2.0, first_timeout=0.25)
    assert [settings.timeout_of(timeouts) for timeouts in (0, 1, 2, 3, 999)] == [0.25, 0.75, 2.0, 2.0, 2.0]


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


def test_addresses():
    assert split_host_port("10.0.0.7:8700") == ("10.0.0.7", 8700)
    assert split_host_port("[::1]:8700") == ("::1", 8700)
    for wrong in ("10.0.0.7", "::1:8700", "host:", "host:0", "host:70000", ":80", "host:8o", "host:٣"):
        with pytest.raises(ValueError, match="not an address"):
            split_host_port(wrong)
