"""What both versions of control groups offer to the backend, and the machine that has none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandlot_contract.ids import InstanceId

NAME = "sandlot"  # every group of ours is {something}/sandlot/{instance id}
# All sandboxes together weigh like so many other sessions for each core. With the weight of one, which a new group
# has, the commands queue behind every sidecar: of eight equal sandboxes one got a fifth of what another got.
SESSIONS_PER_CORE = 4


@dataclass(frozen=True, slots=True)
class Usage:
    """memory in bytes, cpu in seconds since the start, pids a count; None where no hierarchy counts it."""

    memory: int | None = None
    cpu: float | None = None
    pids: int | None = None


class Cgroups(Protocol):
    version: str  # "v1", "v2" or "none"
    notes: Sequence[str]  # what is missing and what to do about it

    def create(self, instance_id: InstanceId) -> str | None:
        """Makes the instance's groups; gives the sidecar's `cgroup_parent`. Raises OSError."""
        ...

    def paths(self, instance_id: InstanceId) -> list[Path]:
        """The directories that `create` makes, so that they can be found by a later gateway."""
        ...

    def usage(self, instance_id: InstanceId) -> Usage: ...

    def close(self) -> None:
        """Removes the common parents when nothing is in them."""
        ...


class NoCgroups:
    """A machine where no control group can be written: the sidecar uses rlimits and says so."""

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
    """A counter file's number; None when it is not there or says `max`."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def write(path: Path, value: int | str) -> None:
    # One write call: the kernel parses each write on its own, and a buffered file may try again at close.
    with open(path, "wb", buffering=0) as file:
        file.write(str(value).encode())


def weight(path: Path, *, each: int, most: int) -> None:
    """Writes the weight of all sandboxes, `each` being a session's; a kernel that refuses keeps its own."""
    with contextlib.suppress(OSError):
        write(path, min(most, each * SESSIONS_PER_CORE * len(os.sched_getaffinity(0))))


def make(path: Path) -> None:
    """mkdir -p, also while an executor removes the common parent because its own group was the last one."""
    for _ in range(20):
        try:
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
        except FileNotFoundError:
            continue
        return
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
