"""Version 1: a directory for the instance in each hierarchy that counts or limits something."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from sandlot_contract.ids import InstanceId

from .base import NAME, Usage, make, read_int, weight
from .mounts import Hierarchy

_WANTED = ("memory", "pids", "cpu", "cpuacct")


class CgroupsV1:
    version = "v1"

    def __init__(self, found: Sequence[Hierarchy]) -> None:
        """`found`: the hierarchies whose top is writable, at least one."""
        self._by_controller: dict[str, Path] = {}
        for hierarchy in found:
            # A version 2 hierarchy beside it has no counters; the executor controls the network there.
            for controller in ("net",) if hierarchy.v2 else hierarchy.controllers.intersection(_WANTED):
                self._by_controller[controller] = hierarchy.mount / NAME
        missing = [name for name in ("memory", "pids", "cpu") if name not in self._by_controller]
        self.notes: Sequence[str] = (
            [f"limits: no writable cgroup for {', '.join(missing)}"] if missing else []
        )

    def create(self, instance_id: InstanceId) -> str | None:
        for path in self.paths(instance_id):
            make(path)
        if "cpu" in self._by_controller:
            weight(self._by_controller["cpu"] / "cpu.shares", each=1024, most=262144)
        return f"{NAME}/{instance_id}"

    def paths(self, instance_id: InstanceId) -> list[Path]:
        return sorted({parent / instance_id for parent in self._by_controller.values()})

    def usage(self, instance_id: InstanceId) -> Usage:
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
