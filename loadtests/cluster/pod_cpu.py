"""CPU use of pods whose nodes run on this machine, from /proc: current, unlike a kubelet's last sample."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_UID = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")


class PodCpu:
    """CPU by part: `pods` maps pod uids to parts, `processes` parts to processes of this machine."""

    def __init__(self, pods: Mapping[str, str], *, processes: Mapping[str, int]) -> None:
        self._pods = pods
        self._processes = {pid: part for part, pid in processes.items()}

    def look(self) -> dict[str, float]:
        """Return each part's CPU seconds so far; an ended child counts for the process that waited for it."""
        found: dict[str, float] = {}
        for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
            try:
                part = self._processes.get(pid) or self._part(Path(f"/proc/{pid}/cgroup").read_text())
                if part:
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                    found[part] = found.get(part, 0.0) + sum(map(int, fields[11:15])) / _TICK
            except OSError:
                continue  # the process has ended meanwhile
        if not set(self._pods.values()) & found.keys():
            return {}  # the nodes are on other machines
        return {**found, "machine": _busy()}

    def since(self, before: Mapping[str, float]) -> dict[str, float]:
        return {part: used - before[part] for part, used in self.look().items() if part in before}

    def _part(self, groups: str) -> str:
        found = _UID.search(groups)
        return self._pods.get(found[1].replace("_", "-"), "") if found else ""


def _busy() -> float:
    """Return the CPU seconds of all processes of the machine."""
    user, nice, system, _, _, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / _TICK
