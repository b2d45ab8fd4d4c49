"""A relay before a real server that stalls requests, or loses their answers after the server has done what they ask."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def _never(head: bytes) -> bool:
    return False


class Forwarding:
    """A port on loopback whose connections `_forward` carries to another port, each in a thread."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.connections = 0  # so far
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._forward, args=(client,))
            self._threads.append(thread)
            thread.start()

    def _forward(self, client: socket.socket) -> None:
        raise NotImplementedError


class Relay(Forwarding):
    """`stalls` and `loses` are asked for the beginning of each piece of a request; a stalled one is never answered."""

    def __init__(self, port: int) -> None:
        self.stalls: Callable[[bytes], bool] = _never
        self.loses: Callable[[bytes], bool] = _never
        self.pieces: list[bytes] = []
        self._over = threading.Event()
        super().__init__(port)

    def close(self) -> None:
        self._over.set()
        super().close()

    def _forward(self, client: socket.socket) -> None:
        is_lost = False
        with client, socket.create_connection(("127.0.0.1", self._to)) as server:
            while not self._over.is_set():
                for one in select.select([client, server], [], [], 0.1)[0]:
                    try:
                        data = one.recv(65536)
                        if not data or (one is server and is_lost):
                            return
                        if one is client:
                            self.pieces.append(data[:200])
                            if self.stalls(data):
                                self._over.wait()
                                return
                            is_lost = is_lost or self.loses(data)
                        (server if one is client else client).sendall(data)
                    except OSError:
                        return


@contextmanager
def relaying(port: int) -> Iterator[Relay]:
    relay = Relay(port)
    try:
        yield relay
    finally:
        relay.close()


def once(method: str, part: str) -> Callable[[bytes], bool]:
    """Whether it is the first request with this method whose path has `part`."""
    left = [1]

    def found(head: bytes) -> bool:
        line = head.partition(b"\r\n")[0]
        if left[0] and line.startswith(method.encode()) and part.encode() in line:
            left[0] -= 1
            return True
        return False

    return found
