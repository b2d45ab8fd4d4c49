"""Creates the sockets of a client session: they notice a dead connection, and all of them can be closed.

aiohttp loses track of TLS connections that it closes, which wait up to 30 s for the peer's close, and of connects that
were cancelled. Both outlive the session, and their descriptors stay open if the event loop ends first.
"""

from __future__ import annotations

import asyncio
import socket
import weakref
from contextlib import suppress
from typing import Any

import aiohttp

_LOOKS = 200  # in the second that closing may take
# A watch only receives, so without probes it would wait on a connection that a network drops without closing it, and
# count as complete.
_PROBE_AFTER = 4  # seconds without a packet
_PROBE_EVERY = 2  # seconds
_DEAD_AFTER = 10_000  # milliseconds without an answer to a probe or to data
_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_EVERY),
    # For data, too, such as the request of a watch; it replaces the number of probes.
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_AFTER),
)


class Sockets:
    """Creates and closes a session's sockets; `make` is its `socket_factory`."""

    def __init__(self) -> None:
        self._made: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def make(self, address: tuple[int, int, int, str, Any]) -> socket.socket:
        """Create a socket for one result of `socket.getaddrinfo`."""
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        self._made.add(made)
        for level, option, value in _OPTIONS:
            made.setsockopt(level, option, value)
        return made

    async def close(self, session: aiohttp.ClientSession) -> None:
        """Close the session in its loop, and the sockets it leaves open, for which it waits at most a second."""
        await session.close()
        for one in self._made:
            with suppress(OSError):  # not connected, or closed
                one.shutdown(socket.SHUT_RDWR)
        for _ in range(_LOOKS):
            if all(one.fileno() < 0 for one in self._made):
                return
            await asyncio.sleep(1.0 / _LOOKS)
