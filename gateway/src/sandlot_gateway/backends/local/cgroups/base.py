"""The interface of both cgroup versions, and the fallback for machines without writable ones."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandlot_contract.ids import InstanceId

NAME = "sandlot"  # all our groups are {something}/sandlot/{instance id}
# All sandboxes together weigh as much as this many sessions per core. With a new group's default weight of one, the
# commands queue behind every sidecar: of eight equal sandboxes one got a fifth of what another got.
SESSIONS_PER_CORE = 4


@dataclass(frozen=True, slots=True)
class Usage:
    """memory in bytes, cpu in seconds since the start, pids a count; None where no hierarchy counts it."""

    memory: int | None = None
    cpu: float | None = None
    pids: int | None = None


class Cgroups(Protocol):
    version: str  # "v1", "v2" or "none"
    notes: Sequence[str]  # what is missing, and how to fix it

    def create(self, instance_id: InstanceId) -> str | None:
        """Create the instance's groups and return the sidecar's `cgroup_parent`. Raises OSError."""
        ...

    def paths(self, instance_id: InstanceId) -> list[Path]:
        """Return the directories that `create` makes, for a later gateway to find."""
        ...

    def usage(self, instance_id: InstanceId) -> Usage: ...

    def close(self) -> None:
        """Remove the common parents if they are empty."""
        ...


class NoCgroups:
    """For a machine without writable control groups: the sidecar uses rlimits and reports that."""

    version = "none"

    def __init__(self, notes: Sequence[str]) -> None:
        self.notes = notes

    def create(self, instance_id: InstanceId) -> str | None:
        return None

    def paths(self, instance_id: InstanceId) -> list[Path]:
        return []

    def usage(self, instance_id: InstanceId) -> Usage:
        return Usage()

    def close(self) -> None:
        return None


def read_int(path: Path) -> int | None:
    """Read a counter file; return None if it is missing or says `max`."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def write(path: Path, value: int | str) -> None:
    # Unbuffered: the kernel parses each write on its own, and a buffered file may retry at close.
    with open(path, "wb", buffering=0) as file:
        file.write(str(value).encode())


def weight(path: Path, *, each: int, most: int) -> None:
    """Write the weight of all sandboxes, `each` being a session's; ignore a kernel that rejects it."""
    with contextlib.suppress(OSError):
        write(path, min(most, each * SESSIONS_PER_CORE * len(os.sched_getaffinity(0))))


def make(path: Path) -> None:
    """Create a directory and its parents, even while an executor removes the common parent."""
    for _ in range(20):
        try:
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
        except FileNotFoundError:
            continue
        return
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
