"""One command of a runner: what it has used, and whether a limit has ended it."""

from __future__ import annotations

import os
import resource

from .sweep import Sweep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .counters import Counters
    from .group import Group

# An op that so many looks find at its limit of processes is a bomb.
FULL_LOOKS = 5


class Op:
    """The command, and the counters from before it."""

    def __init__(self, *, pid: int, inner_pid: int | None, mark: str, before: Counters) -> None:
        self.pid = pid
        self.inner_pid = inner_pid  # as the sandbox sees it, once it was asked for
        self.pidfd = os.pidfd_open(pid)
        self.before = before
        self.memory: int | None = None  # the group's, and its peak, when the op began
        self.peak: int | None = None
        self.sweep = Sweep(mark=mark, leader=inner_pid or 0)
        self.oom = False
        # The kernel killed one of it for memory, but no limit of the sandbox's was reached.
        self.node_oom = False
        self.full = 0  # looks that found it at its limit of processes
        self.tell_at: float | None = None  # when the server hears of its start, unless it has ended by then

    @property
    def struck(self) -> bool:
        """Whether a look has ended it."""
        return self.oom or self.full >= FULL_LOOKS

    def judge_oom(self, now: Counters) -> None:
        """Whose memory was used up: the kernel kills also where that of the node, or of more than this sandbox, is."""
        if now.oom > self.before.oom and not self.oom and not self.node_oom:
            self.oom = now.refused > self.before.refused
            self.node_oom = not self.oom

    def overran(self, group: Group | None, now: Counters, *, failed: bool) -> bool:
        """Whether the limit of processes is why it failed, or what it left is a fork bomb."""
        if not group or now.pids <= self.before.pids:
            return False
        return failed or group.overrun(before=self.before.pids)

    def peak_memory(self, group: Group | None, largest: int) -> int:
        """Bytes; `largest`: the size of its own largest process."""
        peak = group.number("memory_peak") if group else None
        if peak is None or self.memory is None or self.peak is None:
            return largest
        # A child's largest size begins with that of this process, whose memory it borrows until its exec.
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        single = largest if largest > own else 0
        if peak == self.peak and peak > self.memory:
            # The peak of an earlier op, where it cannot be set back, says nothing of this one.
            return largest
        return max(single, peak - self.memory)

    def cpu(self, now: Counters, *, waited_for: float) -> float:
        """Seconds of processor time; `waited_for`: of its own process and of those that this has waited for."""
        if self.before.cpu is None or now.cpu is None:
            return waited_for
        return round(max(waited_for, now.cpu - self.before.cpu), 6)
