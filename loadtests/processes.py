"""Memory (each page once) and wake-ups of a set of processes, from /proc."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_SIZES = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes. `private`: pages that one process alone has (Private_Dirty and Private_Clean), of all of them;
    `shared`: anonymous pages that some of them share by a fork, each once; `resident`: every page in every process."""

    private: int
    shared: int
    resident: int


def with_mark(mark: str, *, without: frozenset[int] = frozenset()) -> list[int]:
    """Return the processes whose command line contains `mark`, and all their descendants."""
    parents: dict[int, int] = {}
    marked: set[int] = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in without:
            continue
        try:
            command = Path(f"/proc/{entry}/cmdline").read_bytes()
            stat = Path(f"/proc/{entry}/stat").read_text()
        except OSError:
            continue
        parents[int(entry)] = int(stat.rpartition(")")[2].split()[1])
        if mark.encode() in command:
            marked.add(int(entry))
    return sorted(pid for pid in parents if _has_ancestor(pid, parents=parents, among=marked))


def _has_ancestor(pid: int, *, parents: dict[int, int], among: set[int]) -> bool:
    seen: set[int] = set()
    while pid in parents and pid not in seen:
        if pid in among:
            return True
        seen.add(pid)
        pid = parents[pid]
    return False


def memory(pids: list[int]) -> Memory:
    """Return the memory of these processes together. Raises OSError if one is gone."""
    private = anonymous = own_anonymous = resident = 0
    for pid in pids:
        sizes = dict(_SIZES.findall(Path(f"/proc/{pid}/smaps_rollup").read_text()))
        private += (int(sizes["Private_Dirty"]) + int(sizes["Private_Clean"])) * 1024
        anonymous += int(sizes["Pss_Anon"]) * 1024
        own_anonymous += min(int(sizes["Private_Dirty"]), int(sizes["Anonymous"])) * 1024
        resident += int(sizes["Rss"]) * 1024
    return Memory(private=private, shared=max(0, anonymous - own_anonymous), resident=resident)


def wakeups(pids: list[int]) -> int:
    """Return the voluntary context switches of these processes' threads so far. Raises OSError."""
    total = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for line in (task / "status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches:"):
                    total += int(line.split()[1])
    return total
