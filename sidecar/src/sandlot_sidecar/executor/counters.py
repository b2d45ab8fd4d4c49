"""What a runner's control groups have counted at a moment: processor time, kills for memory, refused forks."""

from __future__ import annotations

import mmap
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .group import Group


class Counters:
    """What the cgroup had counted at a moment; processor time without this process's own."""

    __slots__ = ("cpu", "oom", "pids", "refused")

    def __init__(self, group: Group | None, limiting: list[Group], *, alone: bool = False) -> None:
        """`alone`: this process is the only member, and nobody counts forks that were refused."""
        self.cpu = others_cpu(group)
        self.oom = group.oom_kills() if group else 0
        self.refused = refusals(group, limiting)
        self.pids = group.pids_hits() if group and not alone else 0


class Baseline:
    """A runner's counters when its op began, in memory that it shares with the executor.

    Of a runner that is killed in the middle of an op, the executor compares them with what the kernel has counted since.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        self._numbers = memoryview(self._page).cast("q")

    def set(self, *, oom: int, refused: int, memory: int = 0) -> None:
        """`memory`: bytes that the group held."""
        numbers = self._numbers
        numbers[0], numbers[1], numbers[2] = oom, refused, memory

    def memory_facts(self, group: Group, limiting: list[Group]) -> dict[str, Any]:
        """The facts of an `ended` message where the kernel has killed a member for memory since; else none."""
        oom, refused, memory = self._numbers[:3]
        if group.oom_kills() <= oom:
            return {}
        own = refusals(group, limiting) > refused
        peak = max(0, (group.number("memory_peak") or 0) - memory)
        return {"signal": int(signal.SIGKILL), "oom": own, "node_oom": not own, "peak_memory": peak}

    def close(self) -> None:
        self._numbers.release()
        self._page.close()


def refusals(group: Group | None, limiting: list[Group]) -> int:
    """How often a limit of memory was reached that is the sandbox's, or the op's, own."""
    return sum(each.memory_refused() for each in (group, *limiting)) if group else 0


def others_cpu(group: Group | None) -> float | None:
    """Seconds of processor time that the group used besides this process."""
    used = group.cpu_seconds() if group else None
    return None if used is None else used - time.process_time()
