"""Limits all watches of a sandbox together."""

from __future__ import annotations

import asyncio

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Watch(Protocol):
        @property
        def directories(self) -> int: ...


MOST_WATCHES = 16
MOST_DIRECTORIES = 8192  # of all watches: each costs the sidecar 0.4 KiB, and the kernel 1 KiB


class Room:
    """The open watches."""

    def __init__(self) -> None:
        self.watches: set[Watch] = set()
        self.lock = asyncio.Lock()  # of what takes room

    def left(self) -> int:
        """Return how many directories may be watched yet."""
        return max(0, MOST_DIRECTORIES - sum(watch.directories for watch in self.watches))
