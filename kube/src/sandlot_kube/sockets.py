"""The sockets of one client session, so that they can be closed for good.

aiohttp forgets a TLS connection that it closes, which then waits up to 30 s for the other side's goodbye, and one whose
opening was cancelled. Both outlive the session, and a loop that ends before them leaves their descriptors open.
"""

from __future__ import annotations

import asyncio
import socket
import weakref
from contextlib import suppress
from typing import Any

import aiohttp

_LOOKS = 200  # in the second that an end may take


class Sockets:
    """`make` is a session's `socket_factory`."""

    def __init__(self) -> None:
        self._made: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def make(self, address: tuple[int, int, int, str, Any]) -> socket.socket:
        """Takes what `socket.getaddrinfo` says of one address."""
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        self._made.add(made)
        return made

    async def close(self, session: aiohttp.ClientSession) -> None:
        """Close the session, in its loop, and what it leaves open; waits a second at most for that."""
        await session.close()
        for one in self._made:
            with suppress(OSError):  # not connected, or closed
                one.shutdown(socket.SHUT_RDWR)
        for _ in range(_LOOKS):
            if all(one.fileno() < 0 for one in self._made):
                return
            await asyncio.sleep(1.0 / _LOOKS)
