"""Resource use of a local stack's processes from /proc: gateway, sidecars, commands, and the generator."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from loadtests.load.sampling import Usage

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ProcProbe:
    """Samples the processes whose command lines contain `mark`. `gateway` returns the gateway's pid, which changes after
    a fault, or 0; `generators` returns the generator's pids.

    Memory excludes file-backed pages; pages that processes share after a fork count in each.
    """

    def __init__(self, *, mark: str, gateway: Callable[[], int], generators: Callable[[], list[int]]) -> None:
        self._mark = mark.encode()
        self._gateway = gateway
        self._generators = generators
        self._seen: dict[tuple[int, str], float] = {}  # (pid, start time) -> CPU seconds at the last sample
        self._totals: dict[str, float] = {}
        self._first = True

    async def __call__(self) -> dict[str, Usage]:
        return await asyncio.to_thread(self._look)

    def _look(self) -> dict[str, Usage]:
        found: dict[str, Usage] = {}
        generators, gateway = set(self._generators()), self._gateway()
        parts: dict[int, str] = {}
        seen: dict[tuple[int, str], float] = {}
        for pid in sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
            folder = Path("/proc") / str(pid)
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                part = self._part(folder, pid, parts.get(int(fields[1]), ""), gateway, generators)
                if not part:
                    continue
                parts[pid] = part
                resident, shared = (folder / "statm").read_text().split()[1:3]
                descriptors = len(os.listdir(folder / "fd")) if part == "gateway" else 0
            except OSError:
                continue  # the process has ended meanwhile
            cpu = (int(fields[11]) + int(fields[12])) / _TICK
            key = (pid, fields[19])
            # CPU use before the first sample does not belong to the run.
            before = self._seen.get(key, cpu if self._first else 0.0)
            seen[key] = cpu
            self._totals[part] = self._totals.get(part, 0.0) + cpu - before
            usage = found.setdefault(part, Usage(cpu=0.0, memory=0, processes=0))
            usage.memory += (int(resident) - int(shared)) * _PAGE
            usage.processes += 1
            usage.descriptors += descriptors
        for part, usage in found.items():
            usage.cpu = round(self._totals[part], 3)
        self._seen, self._first = seen, False
        return found

    def _part(self, folder: Path, pid: int, parent: str, gateway: int, generators: set[int]) -> str:
        """Read all processes in the order of their pids, so that a parent nearly always precedes its children."""
        if pid == gateway:
            return "gateway"
        if pid in generators:
            return "generator"
        if self._mark in (folder / "cmdline").read_bytes():
            return "sidecars"
        return "commands" if parent in ("sidecars", "commands") else ""
