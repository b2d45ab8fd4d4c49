"""A program's own time limit, by a signal's handler that raises TimeoutError, ends the SDK's calls, as do lost peers."""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
from sandlot import Client, Sandbox
from sandlot._protocol.messages import TransportError
from sandlot._transport_sync.connection import Connection

from tests.sdk.service.server import Service
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)


@contextmanager
def limit(over: Callable[[], object]) -> Iterator[None]:
    """Interrupt the main thread once `over` is true."""

    def raise_it(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("the program's own")

    def watch() -> None:
        wait_until(over)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, raise_it)
    watching = threading.Thread(target=watch)
    watching.start()
    try:
        try:
            yield
        finally:
            watching.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize("stream", [False, True])
def test_it_ends_a_command_that_is_waited_for(service: Service, timeout: float | None, stream: bool) -> None:
    with Client(url=service.url, api_key=service.api_key) as client, Sandbox.create(client=client) as box:

        def run() -> object:
            if stream:
                return list(box.exec("sleep 10", timeout=timeout, stream=True))
            return box.exec("sleep 10", timeout=timeout)

        with pytest.raises(TimeoutError, match="the program's own"), limit(lambda: bool(service.ops)):
            run()
        assert box.exec("echo next").stdout == "next\n"  # no answer is another call's


class Lost(socket.socket):
    """A peer that the kernel has given up, as after a node's loss."""

    def recv(self, size: int, flags: int = 0) -> bytes:
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_peer_that_the_kernel_gives_up_is_a_lost_connection(timeout: float | None) -> None:
    ours, theirs = socket.socketpair()
    with theirs, Lost(fileno=ours.detach()) as lost:
        connection = Connection(lost, again=(BlockingIOError,))
        connection.begin(b"GET / HTTP/1.1\r\n\r\n", timeout=timeout)
        with pytest.raises(TransportError, match="Connection timed out") as raised:
            connection.wait(lambda: connection.parser.done, timeout)
    assert raised.value.sent
    assert not raised.value.timed_out


def test_a_wait_ends_at_its_own_time() -> None:
    ours, theirs = socket.socketpair()
    with theirs, ours:
        connection = Connection(ours, again=(BlockingIOError,))
        connection.begin(b"GET / HTTP/1.1\r\n\r\n", timeout=1.0)
        with pytest.raises(TransportError, match=r"no answer within 0\.05 s") as raised:
            connection.wait(lambda: connection.parser.done, 0.05)
    assert raised.value.timed_out
