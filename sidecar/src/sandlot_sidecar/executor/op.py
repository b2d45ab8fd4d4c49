"""A runner's running op: its resource usage, and whether it exceeded a limit."""

from __future__ import annotations

import os
import resource

from .sweep import Sweep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .counters import Counters
    from .group import Group

# An op that this many checks find at its process limit is a fork bomb. It also delays the checks.
FULL_CHECKS = 5
FULL_INTERVAL = 0.05  # seconds between them
# A late check stands for this many at most, so it takes three: a pod can also be paused, between two moments at which
# an honest op touches its limit.
LATE_CHECKS = FULL_CHECKS - 2


class Op:
    """The op's process, and the counters from before its start."""

    def __init__(self, *, pid: int, inner_pid: int | None, mark: str, before: Counters) -> None:
        self.pid = pid
        self.inner_pid = inner_pid  # its pid in the sandbox, once looked up
        self.pidfd = os.pidfd_open(pid)
        self.before = before
        self.memory: int | None = None  # the group's usage and peak at the op's start
        self.peak: int | None = None
        self.sweep = Sweep(mark=mark, leader=inner_pid or 0)
        self.oom = False
        self.crowded_bomb = False  # busy at a limit that is not its own
        # OOM-killed although no limit of the sandbox was reached.
        self.node_oom = False
        self.full_with: int | None = None  # processes with which its group is full; None: not read
        self.full = 0  # checks that found it at its process limit, or would have
        self._full_at: float | None = None  # time of the last check, if that found it there
        self.timed: tuple[float, float] | None = None  # times of the request and of the spawn, if asked for
        self.report_start_at: float | None = None  # when to report its start, unless it has ended by then

    @property
    def over_limit(self) -> bool:
        """Whether a check found the op above a limit."""
        return self.oom or self.is_bomb

    @property
    def is_bomb(self) -> bool:
        """Whether the checks found the op to be a fork bomb."""
        return self.crowded_bomb or self.full >= FULL_CHECKS

    def check_full(self, full: bool, *, now: float) -> None:
        """Record whether a check found it at its process limit; a late check stands for those before it."""
        if full:
            late = 0.0 if self._full_at is None else now - self._full_at
            self.full += min(LATE_CHECKS, max(1, int(late / FULL_INTERVAL)))
        self._full_at = now if full else None

    def classify_oom(self, now: Counters) -> None:
        """Classify an OOM kill: by a limit of the sandbox, or by one of the node or a larger group."""
        if now.oom > self.before.oom and not self.oom and not self.node_oom:
            self.oom = now.refused > self.before.refused
            self.node_oom = not self.oom

    def hit_pids_limit(self, group: Group | None, now: Counters, *, failed: bool) -> bool:
        """Return whether the process limit made the op fail, or the op left a fork bomb."""
        if not group or now.pids <= self.before.pids:
            return False
        return failed or group.is_fork_bomb(before=self.before.pids)

    def peak_memory(self, group: Group | None, largest: int) -> int:
        """Return the peak memory in bytes; `largest`: the peak RSS of its largest process."""
        peak = group.number("memory_peak") if group else None
        if peak is None or self.memory is None or self.peak is None:
            return largest
        # A child's peak RSS starts with this process's, whose memory it shares until its exec.
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        single = largest if largest > own else 0
        if peak == self.peak and peak > self.memory:
            # The peak is an earlier op's: the kernel cannot reset it.
            return largest
        return max(single, peak - self.memory)

    def cpu(self, now: Counters, *, waited_for: float) -> float:
        """Return the CPU seconds; `waited_for`: those of its own process and of the children it waited for."""
        if self.before.cpu is None or now.cpu is None:
            return waited_for
        return round(max(waited_for, now.cpu - self.before.cpu), 6)
