"""Says by a new file's number how near the process is to its limit of open files: the kernel gives the lowest free one."""

from __future__ import annotations

import resource
from enum import IntEnum


class Room(IntEnum):
    """What is left of the limit: `FEW`, less than a sixteenth; `NONE`, less than a 64th, which running calls need."""

    ENOUGH = 0
    FEW = 1
    NONE = 2


class OpenFiles:
    def __init__(self, limit: int | None = None) -> None:
        """`limit`: files that the process may have open; None: its own soft limit."""
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
        self._few = most - most // 16
        self._none = most - most // 64

    def room_after(self, number: int) -> Room:
        """Return what is left once a file with this number is open."""
        if number < self._few:
            return Room.ENOUGH
        return Room.FEW if number < self._none else Room.NONE
