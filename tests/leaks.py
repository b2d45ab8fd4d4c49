"""Sees what a test left on the machine: processes, mounts, cgroups, descriptors, tasks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Snapshot:
    children: frozenset[int]
    sandlot_processes: frozenset[int]
    mounts: frozenset[str]
    cgroups: frozenset[str]
    descriptors: int


def _children(pid: int) -> frozenset[int]:
    """Of all its threads. Not theirs in turn: a server of the whole session may start and end some at any time."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found.update(int(child) for child in (task / "children").read_text().split())
    return frozenset(found)


def _sandlot_processes(marker: str) -> frozenset[int]:
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z" and b"sandlot_" in command and marker.encode() in command:
            found.add(int(entry.name))
    return frozenset(found)


def _empty_cgroups() -> frozenset[str]:
    """Sandlot's cgroups without a process: what a test forgot. Another stack's on this machine have processes."""
    found: set[str] = set()
    for base in ("memory", "pids", "freezer", "unified", ""):
        # os.walk, unlike rglob, passes over a directory that goes while it looks.
        for parent, directories, _ in os.walk(Path("/sys/fs/cgroup") / base):
            if Path(parent).name == "sandlot":
                paths = [Path(parent) / name for name in directories]
                found.update(str(path) for path in paths if path.is_dir() and not _occupied(path))
                directories.clear()
    return frozenset(found)


def _occupied(directory: Path) -> bool:
    try:
        return any(path.read_text() for path in directory.rglob("cgroup.procs"))
    except OSError:
        return True


def snapshot(*, marker: str = "") -> Snapshot:
    return Snapshot(
        children=_children(os.getpid()),
        sandlot_processes=_sandlot_processes(marker),
        mounts=frozenset(
            line.split(" - ")[0].split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()
        ),
        cgroups=_empty_cgroups(),
        descriptors=len(os.listdir("/proc/self/fd")),
    )


def differences(before: Snapshot, after: Snapshot, *, descriptors: bool = True) -> set[str]:
    """What is there after and was not before, each by itself."""
    left: set[str] = set()
    for name in ("children", "sandlot_processes", "mounts", "cgroups"):
        left.update(f"{name}: {item}" for item in getattr(after, name) - getattr(before, name))
    if descriptors and after.descriptors > before.descriptors:
        left.add(f"descriptors: more than {before.descriptors}")
    return left


@contextmanager
def no_leaks(*, marker: str = "", grace: float = 30.0, descriptors: bool = True) -> Iterator[None]:
    """Raises AssertionError when the block leaves something behind that has not gone within `grace` seconds.

    `marker`, a state directory say, limits the processes looked at to those with it on their command line.
    """
    before = snapshot(marker=marker)
    yield
    deadline = time.monotonic() + grace
    left = differences(before, snapshot(marker=marker), descriptors=descriptors)
    while left:
        if time.monotonic() > deadline:
            raise AssertionError("left behind: " + "; ".join(sorted(left)[:30]))
        time.sleep(0.05)
        # A cgroup of a test beside this one is empty for a moment when it is made and removed: what stays counts.
        left &= differences(before, snapshot(marker=marker), descriptors=descriptors)
