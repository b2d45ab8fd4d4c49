"""Queues messages to the executor or a runner until the socket accepts them."""

from __future__ import annotations

import os
from collections import deque

from ..executor import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Sequence


class SendQueue:
    """Sends in order and never blocks, since user code can keep the other side busy for any length of time."""

    __slots__ = ("_loop", "_on_broken", "_sock", "_waiting")

    def __init__(
        self, sock: socket.socket, *, loop: asyncio.AbstractEventLoop, on_broken: Callable[[], None]
    ) -> None:
        """`sock` is non-blocking. `on_broken` is called if a queued message can no longer be sent."""
        self._sock = sock
        self._loop = loop
        self._on_broken = on_broken
        self._waiting: deque[tuple[memoryview, list[int]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def send(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Send or queue one message; the caller keeps the descriptors and may close them. Raises OSError."""
        rest = memoryview(data)
        if not self._waiting:
            sent = wire.send_some(self._sock, rest, fds)
            if sent == len(data):
                return
            if sent:
                rest, fds = rest[sent:], ()
            self._loop.add_writer(self._sock.fileno(), self._writable)
        self._waiting.append((rest, [os.dup(fd) for fd in fds]))

    def _writable(self) -> None:
        try:
            while self._waiting:
                data, fds = self._waiting[0]
                sent = wire.send_some(self._sock, data, fds)
                if sent == 0:
                    return
                wire.close_all(fds)
                fds.clear()
                if sent == len(data):
                    self._waiting.popleft()
                else:
                    self._waiting[0] = data[sent:], fds
        except OSError:
            self.close()
            self._on_broken()
        else:
            self._loop.remove_writer(self._sock.fileno())

    def close(self) -> None:
        """Drop queued messages; call before the socket is closed."""
        if self._waiting:
            self._loop.remove_writer(self._sock.fileno())
        for _, fds in self._waiting:
            wire.close_all(fds)
        self._waiting.clear()
