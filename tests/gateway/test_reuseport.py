"""A second socket takes an address over from a first one, whose queued connections are awaited."""

from __future__ import annotations

import contextlib
import socket
from contextlib import ExitStack

from sandlot_gateway import reuseport

from tests.ports import address, free_port
from tests.waiting import wait_until


def test_a_socket_takes_over_after_the_queue_of_the_earlier_one_is_empty() -> None:
    where = (address(1), free_port())

    def listener(host: str, *, shared: bool = True) -> socket.socket:
        sock = stack.enter_context(socket.socket())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, shared)
        sock.bind((host, where[1]))
        sock.listen()
        sock.settimeout(5)
        return sock

    def connect(count: int) -> None:
        for _ in range(count):
            stack.enter_context(socket.create_connection(where, timeout=5))

    def accepted(sock: socket.socket, count: int) -> None:
        for _ in range(count):
            sock.accept()[0].close()

    with ExitStack() as stack:
        listener(address(2))
        assert reuseport.listening(*where) == []
        with contextlib.closing(listener(where[0], shared=False)):
            assert reuseport.listening(*where) == []
        first = listener(where[0])
        earlier = reuseport.listening(*where)
        assert earlier == [first.fileno()]
        connect(3)
        wait_until(lambda: reuseport.queued(earlier) == 3)  # the kernel may be late with the last handshake
        second = listener(where[0])
        reuseport.prefer_last(earlier)
        connect(8)
        wait_until(lambda: reuseport.queued([second.fileno()]) == 8)
        accepted(first, 3)
        assert reuseport.queued(earlier) == 0
        reuseport.stop_listening(earlier)
        assert reuseport.listening(*where) == [second.fileno()]
        connect(2)
        accepted(second, 10)
