"""Tracks the sockets of a client session, so that all of them can be closed.

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


class Sockets:
    """Creates and closes a session's sockets; `make` is its `socket_factory`."""

    def __init__(self) -> None:
        self._made: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def make(self, address: tuple[int, int, int, str, Any]) -> socket.socket:
        """Create a socket for one result of `socket.getaddrinfo`."""
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        self._made.add(made)
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
