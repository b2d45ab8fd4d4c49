"""Checks a runner's op against the limits of memory and processes that the kernel does not enforce (gVisor)."""

from __future__ import annotations

import time

from .crowded_bombs import CrowdedBombs
from .op import FULL_INTERVAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .group import Group
    from .memory_watch import MemoryWatch
    from .op import Op


class LimitChecks:
    """The checks of one op after the other, in the runner's group."""

    def __init__(self, group: Group | None, watch: MemoryWatch) -> None:
        self._group = group
        self._watch = watch
        self._memory_at = self._pids_at = 0.0  # monotonic times of the next checks
        self._bombs = CrowdedBombs()

    @property
    def due(self) -> float:
        """Monotonic time of the next check."""
        return min(self._memory_at, self._pids_at)

    def begin(self) -> None:
        """Begin to watch an op that has started."""
        self._bombs = CrowdedBombs()  # what earlier ops used is not this one's
        self._memory_at = self._pids_at = self._watch.first_check()

    def exceeded(self, op: Op) -> str | None:
        """Do the checks that are due; return the limit for which the op must be killed: `oom` or `pids_limit`."""
        if op.over_limit or not self._group:
            return None
        now = time.monotonic()
        if now >= self._memory_at:
            self._memory_at, op.oom = self._watch.check(self._group)
            if op.oom:
                return "oom"
        if now >= self._pids_at:
            self._pids_at = now + FULL_INTERVAL
            if op.full_with is None:
                op.full_with = self._group.full_with()
            many = op.full_with is not None and self._watch.found >= op.full_with
            op.check_full(many and self._group.full(), now=now)
            op.crowded_bomb = self._bombs.has(self._group, self._watch, now=now)
            if op.is_bomb:
                return "pids_limit"
        return None
