"""Snapshots of the counters of a runner's control groups: CPU time, OOM kills, denied forks."""

from __future__ import annotations

import mmap
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .group import Group


class Counters:
    """The counters at one moment; CPU time excludes this process's own."""

    __slots__ = ("cpu", "oom", "pids", "refused")

    def __init__(self, group: Group | None, limiting: list[Group], *, alone: bool = False) -> None:
        """`alone`: this process is the only member, and the kernel does not count denied forks."""
        self.cpu = cpu_without_self(group)
        self.oom = group.oom_kills() if group else 0
        self.refused = refusals(group, limiting)
        self.pids = group.pids_hits() if group and not alone else 0


class Baseline:
    """A runner's counters at the start of its op, in memory shared with the executor.

    If the runner is killed during an op, the executor compares them with the current counters.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        self._numbers = memoryview(self._page).cast("q")

    def set(self, *, oom: int, refused: int, memory: int = 0) -> None:
        """Store the counters; `memory`: bytes charged to the group."""
        numbers = self._numbers
        numbers[0], numbers[1], numbers[2] = oom, refused, memory

    @property
    def killed(self) -> bool:
        """Whether the op was killed with all its processes: one that is left is to be killed, too."""
        return bool(self._numbers[3])

    @killed.setter
    def killed(self, value: bool) -> None:
        self._numbers[3] = int(value)

    def memory_facts(self, group: Group, limiting: list[Group]) -> dict[str, Any]:
        """Return the facts of an `ended` message if the kernel has OOM-killed a member since, else an empty dict."""
        oom, refused, memory = self._numbers[:3]
        if group.oom_kills() <= oom:
            return {}
        own = refusals(group, limiting) > refused
        peak = max(0, (group.number("memory_peak") or 0) - memory)
        return {"signal": int(signal.SIGKILL), "oom": own, "node_oom": not own, "peak_memory": peak}

    def close(self) -> None:
        """Unmap the shared page."""
        self._numbers.release()
        self._page.close()


def refusals(group: Group | None, limiting: list[Group]) -> int:
    """Return how often the op's or the sandbox's own memory limit was reached."""
    return sum(each.memory_refused() for each in (group, *limiting)) if group else 0


def cpu_without_self(group: Group | None) -> float | None:
    """Return the CPU seconds that the group used, without this process's."""
    used = group.cpu_seconds() if group else None
    return None if used is None else used - time.process_time()
