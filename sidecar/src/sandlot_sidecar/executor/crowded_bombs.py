"""Finds fork bombs that the limit of all of a user's processes stops before the limit of their own group (gVisor)."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .group import Group
    from .memory_watch import MemoryWatch

# Of a core, in system calls. A bomb that can grow no more goes on to try, and a refused fork costs gVisor as much as
# another; the other processes of a full pod wait or compute. No file of gVisor's counts refused forks.
SYSTEM_SHARE = 0.1


class CrowdedBombs:
    """The CPU time in system calls of groups that hold many processes, from check to check."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[float, float]] = {}  # group's name -> time of the check, system seconds

    def has(self, group: Group, watch: MemoryWatch) -> bool:
        """Return whether the pod is full and the group, with more than half of its limit, is busy in system calls."""
        if not watch.is_full():
            self._used.clear()
            return False
        if not group.holds_many():
            return False
        now, used = time.monotonic(), group.system_seconds() or 0.0
        at, before = self._used.get(group.name, (now, used))
        self._used[group.name] = now, used
        return used - before > SYSTEM_SHARE * (now - at)
