"""Finds fork bombs that the limit of all of a user's processes stops before the limit of their own group (gVisor)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .group import Group
    from .memory_watch import MemoryWatch

# Of a core, in system calls. A bomb that can grow no more goes on to try, and a refused fork costs gVisor as much as
# another; the other processes of a full pod wait or compute. No file of gVisor's counts refused forks.
SYSTEM_SHARE = 0.03
# Seconds over which it is measured: gVisor's clocks of CPU time move in steps of 10 ms, and a step between two checks
# would be a large share.
SPAN = 3.0


class CrowdedBombs:
    """The CPU time in system calls of groups that hold many processes, from span to span."""

    def __init__(self) -> None:
        # group's name -> begin of its span, system seconds by then
        self._spans: dict[str, tuple[float, float]] = {}

    def has(self, group: Group, watch: MemoryWatch, *, now: float) -> bool:
        """Return whether the pod is full and the group, with more than half of its limit, is busy in system calls.

        Only the ends of a span count: a bomb's processes end and others begin, so it does not fill the pod all the time.
        """
        span = self._spans.get(group.name)
        if span is not None and now - span[0] < SPAN:
            return False
        if not watch.is_full():
            self._spans.clear()
            return False
        if not group.holds_many():
            self._spans.pop(group.name, None)
            return False
        used = group.system_seconds() or 0.0
        begin, before = span or (now, used)
        self._spans[group.name] = now, used
        return used - before > SYSTEM_SHARE * (now - begin)
