"""The limits that a caller sets on one op: memory, processes and CPU time."""

from __future__ import annotations

import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .group import Group
    from .memory_watch import MemoryWatch


class OpLimits:
    """Applies per-op limits to a runner's control group, and restores its own before the next op."""

    def __init__(self, group: Group | None, watch: MemoryWatch | None) -> None:
        """`watch`: set only where the kernel's limit of a group's processes is not exact (gVisor)."""
        self._group = group
        self._watch = watch
        self._limit: int | None = None  # of each user's processes, if set
        self._given: tuple[int, int] | None = None  # this process's own, before the first was set
        self._defaults: dict[str, str] = {}

    def set(self, limits: dict[str, Any]) -> None:
        """Restore the group's own limits, then set those of the next op before it is started."""
        if self._watch is not None:
            self._limit_processes(self._watch.process_limit)
        if not self._group:
            return
        for what, text in self._defaults.items():
            self._group.write(what, text)
        self._defaults.clear()
        memory, pids = limits.get("memory"), limits.get("pids")
        for what, value in (("memory_limit", memory), ("pids_limit", pids)):
            if value is None:
                continue
            now = self._group.read(what)
            if now is None:
                continue
            self._defaults[what] = now.strip()
            own = (self._group.number("memory") or 0) if what == "memory_limit" else 1
            limit = int(value) + own
            text = now.strip()
            if not text.isdigit() or int(text) > limit:
                self._group.limit(what, limit)

    def _limit_processes(self, limit: int | None) -> None:
        """Limit each user's processes by an rlimit, which ops inherit and cannot raise.

        Under gVisor a process is in one group of each of seven hierarchies, and a fork asks a random one of them: only
        one fork in seven over a group's limit is refused.
        """
        if limit == self._limit:
            return
        self._limit = limit
        if self._given is None:
            self._given = resource.getrlimit(resource.RLIMIT_NPROC)
        soft, hard = self._given
        if limit is not None:
            soft, hard = (
                limit if each == resource.RLIM_INFINITY else min(limit, each) for each in self._given
            )
        try:
            # Back up, too, by CAP_SYS_RESOURCE: a prepared runner has had the limit of the owner before.
            resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
        except (ValueError, OSError):
            return  # without it the lower one stays


def limit_cpu_seconds(pid: int, seconds: float) -> None:
    """Limit the CPU time of a process, and of each of its descendants."""
    whole = max(1, int(seconds + 0.999))
    try:
        resource.prlimit(pid, resource.RLIMIT_CPU, (whole, whole + 1))
    except (OSError, ValueError):
        return
