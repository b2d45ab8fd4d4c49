"""The limits that a caller sets on one op: memory, processes and CPU time."""

from __future__ import annotations

import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .group import Group


class OpLimits:
    """Applies per-op limits to a runner's control group, and restores its own before the next op."""

    def __init__(self, group: Group | None) -> None:
        self._group = group
        self._defaults: dict[str, str] = {}

    def set(self, limits: dict[str, Any]) -> None:
        """Restore the group's own limits, then set those of the next op before it is started."""
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


def limit_cpu_seconds(pid: int, seconds: float) -> None:
    """Limit the CPU time of a process, and of each of its descendants."""
    whole = max(1, int(seconds + 0.999))
    try:
        resource.prlimit(pid, resource.RLIMIT_CPU, (whole, whole + 1))
    except (OSError, ValueError):
        return
