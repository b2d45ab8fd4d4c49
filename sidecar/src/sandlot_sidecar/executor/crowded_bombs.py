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
# Spans in a row. In the first one the processes of a command that has just filled the pod still begin, late on a busy
# machine: that alone can take more than the share.
SPANS = 2


class _Span:
    __slots__ = ("before", "begin", "busy")

    def __init__(self, begin: float, before: float, busy: int) -> None:
        self.begin = begin
        self.before = before  # system seconds of the group by then
        self.busy = busy  # spans in a row, up to then, with more than the share


class CrowdedBombs:
    """The CPU time in system calls of groups that hold many processes, from span to span."""

    def __init__(self) -> None:
        self._spans: dict[str, _Span] = {}  # by group's name

    def has(self, group: Group, watch: MemoryWatch, *, now: float) -> bool:
        """Return whether the pod is full and the group, with more than half of its limit, is busy in system calls.

        Only the ends of a span count: a bomb's processes end and others begin, so it does not fill the pod all the time.
        """
        span = self._spans.get(group.name)
        if span is not None and now - span.begin < SPAN:
            return False
        if not watch.is_full():
            self._spans.clear()
            return False
        if not group.holds_many():
            self._spans.pop(group.name, None)
            return False
        used = group.system_seconds() or 0.0
        busy = 0
        if span is not None and used - span.before > SYSTEM_SHARE * (now - span.begin):
            busy = span.busy + 1
        self._spans[group.name] = _Span(now, used, busy)
        return busy >= SPANS
