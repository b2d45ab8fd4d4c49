"""Version 1: a directory for the instance in each hierarchy that counts or limits something."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from .base import NAME, Limits, Usage, read_int, write
from .mounts import Hierarchy

_PERIOD = 100_000  # microseconds
_WANTED = ("memory", "pids", "cpu", "cpuacct", "freezer")


def limit_files(limits: Limits) -> dict[str, dict[str, int]]:
    """What is written, by controller and in order."""
    return {
        "memory": {
            "memory.limit_in_bytes": limits.memory,
            "memory.memsw.limit_in_bytes": limits.memory,
        },
        "pids": {"pids.max": limits.pids},
        "cpu": {"cpu.cfs_period_us": _PERIOD, "cpu.cfs_quota_us": max(1000, round(limits.cpu * _PERIOD))},
    }


class CgroupsV1:
    version = "v1"

    def __init__(self, found: Sequence[Hierarchy]) -> None:
        """`found`: the hierarchies with a writable own group. At least one."""
        self._by_controller: dict[str, Path] = {}
        for hierarchy in found:
            for controller in hierarchy.controllers.intersection(_WANTED):
                self._by_controller[controller] = hierarchy.own / NAME
        missing = [name for name in ("memory", "pids", "cpu") if name not in self._by_controller]
        self.notes: Sequence[str] = (
            [f"limits: no writable cgroup for {', '.join(missing)}"] if missing else []
        )

    def create(self, instance_id: str, limits: Limits) -> str | None:
        for path in self.paths(instance_id):
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.limit(instance_id, limits)
        return f"{NAME}/{instance_id}"

    def paths(self, instance_id: str) -> list[Path]:
        return sorted({parent / instance_id for parent in self._by_controller.values()})

    def limit(self, instance_id: str, limits: Limits) -> None:
        for controller, files in limit_files(limits).items():
            parent = self._by_controller.get(controller)
            if parent is None:
                continue
            directory = parent / instance_id
            if controller == "memory":
                _limit_memory(directory, files)
            else:
                for name, value in files.items():
                    write(directory / name, value)

    def usage(self, instance_id: str) -> Usage:
        def read(controller: str, name: str) -> int | None:
            parent = self._by_controller.get(controller)
            return None if parent is None else read_int(parent / instance_id / name)

        nanoseconds = read("cpuacct", "cpuacct.usage")
        return Usage(
            memory=read("memory", "memory.usage_in_bytes"),
            cpu=None if nanoseconds is None else nanoseconds / 1e9,
            pids=read("pids", "pids.current"),
        )

    def close(self) -> None:
        for parent in set(self._by_controller.values()):
            try:
                os.rmdir(parent)
            except OSError as error:
                if error.errno not in (errno.EBUSY, errno.ENOTEMPTY, errno.ENOENT):
                    raise


def _limit_memory(directory: Path, files: dict[str, int]) -> None:
    """Memory without swap and with swap bound each other: the order depends on which way the limit goes."""
    plain, with_swap = ((directory / name, value) for name, value in files.items())
    present = read_int(with_swap[0])
    if present is None:  # a kernel without swap accounting
        write(*plain)
    elif present < with_swap[1]:
        write(*with_swap)
        write(*plain)
    else:
        write(*plain)
        write(*with_swap)
