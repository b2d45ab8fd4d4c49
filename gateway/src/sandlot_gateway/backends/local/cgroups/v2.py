"""Version 2: one directory for the instance, below a group that holds no processes."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from sandlot_contract.ids import InstanceId

from .base import NAME, Usage, make, read_int, weight, write
from .mounts import Hierarchy

_LEAF = "sandlot-gateway"
_WANTED = ("cpu", "memory", "pids")


class CgroupsV2:
    version = "v2"

    def __init__(self, *, base: Path, mount: Path) -> None:
        """Use `base`, somewhere below the hierarchy's `mount`, as the parent of the instances' groups."""
        self._base = base
        self._mount = mount
        controllers = _words(base / "cgroup.controllers")
        missing = [name for name in _WANTED if name not in controllers]
        self.notes: Sequence[str] = (
            [f"limits: the cgroup {base} has no controller for {', '.join(missing)}"] if missing else []
        )

    def create(self, instance_id: InstanceId) -> str | None:
        directory = self._base / instance_id
        make(directory)
        # Each time: an executor removes the base together with its last group.
        _enable(self._base)
        _enable(directory)
        weight(self._base / "cpu.weight", each=100, most=10000)
        return str(directory.relative_to(self._mount))

    def paths(self, instance_id: InstanceId) -> list[Path]:
        return [self._base / instance_id]

    def usage(self, instance_id: InstanceId) -> Usage:
        directory = self._base / instance_id
        try:
            lines = dict(line.split(" ", 1) for line in (directory / "cpu.stat").read_text().splitlines())
            cpu = int(lines["usage_usec"]) / 1e6
        except (OSError, KeyError, ValueError):
            cpu = None
        return Usage(
            memory=read_int(directory / "memory.current"), cpu=cpu, pids=read_int(directory / "pids.current")
        )

    def close(self) -> None:
        try:
            os.rmdir(self._base)
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOTEMPTY, errno.ENOENT):
                raise


def settle(hierarchy: Hierarchy) -> CgroupsV2 | None:
    """Find or make a parent group for instances in a version 2 hierarchy; return None if there is none.

    In order: the hierarchy's true root may hold both processes and groups; a group that holds only us and our
    parents (a systemd service or scope with Delegate=yes) becomes free of processes when we step down into a
    leaf; and the true root again for a superuser whose own group holds others, a login shell say.
    """
    if "memory" not in _words(hierarchy.mount / "cgroup.controllers"):
        return None
    own = hierarchy.own
    if own.name == _LEAF:
        base_parent = own.parent
    elif _is_true_root(own) or _step_down(own):
        base_parent = own
    elif _is_true_root(hierarchy.mount):
        base_parent = hierarchy.mount
    else:
        return None
    base = base_parent / NAME
    try:
        make(base)
        _enable(base_parent)
        _enable(base)
    except OSError:
        return None
    # It may exist and belong to another user.
    if not os.access(base, os.W_OK) or "memory" not in _words(base / "cgroup.controllers"):
        return None
    return CgroupsV2(base=base, mount=hierarchy.mount)


def _step_down(own: Path) -> bool:
    """Move this process and its parents into a leaf; return False if not allowed or if other processes are there."""
    leaf = own / _LEAF
    moved: list[int] = []
    try:
        present = {int(word) for word in _words(own / "cgroup.procs")}
        if not present <= _ancestry():
            return False
        leaf.mkdir(mode=0o755, exist_ok=True)
        for pid in sorted(present):
            write(leaf / "cgroup.procs", pid)
            moved.append(pid)
        _enable(own)
    except OSError:
        for pid in moved:
            write(own / "cgroup.procs", pid)
        return False
    return True


def _ancestry() -> set[int]:
    """Return the pids of this process and all its parents."""
    found: set[int] = set()
    pid = os.getpid()
    while pid > 0:
        found.add(pid)
        stat = Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat.rpartition(")")[2].split()[1])
    return found


def _enable(directory: Path) -> None:
    """Enable the available ones of our controllers for the directory's children."""
    there = set(_words(directory / "cgroup.controllers")).intersection(_WANTED)
    there -= set(_words(directory / "cgroup.subtree_control"))
    if there:
        write(directory / "cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(there)))


def _is_true_root(directory: Path) -> bool:
    """Return whether this is the machine's root group, the only one without a cgroup.type file."""
    return (directory / "cgroup.procs").exists() and not (directory / "cgroup.type").exists()


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
