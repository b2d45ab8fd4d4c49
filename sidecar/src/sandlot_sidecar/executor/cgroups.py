"""Where the sandbox's control groups are: made under cgroup v1 or v2 at its start, limited, removed at its end."""

from __future__ import annotations

import os

from .group import DIRECTORY, Group, read_file, remove_group, write_file
from .namespaces import Home, mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .namespaces import Mount

# The runners' own tasks (64 busy ones and some spares) come on top of the sandbox's limit of processes.
RUNNERS_ALLOWANCE = 80
CONTROLLERS = ("memory", "pids", "cpu")


class Sandbox:
    """The sandbox's own group, made at `cgroup_parent`."""

    def __init__(
        self, *, group: Group, path: str, roots: dict[int, int], container: Group | None = None
    ) -> None:
        self.group = group
        self.container = container  # the group of a pod's container, which this one is below
        self.path = path
        self._roots = roots  # a hierarchy's directory: how many parts of the path were there before
        # The groups whose limit of memory is the sandbox's own, with the files that say when it was reached open.
        groups = [group] if container is None else [group, container]
        self.limiting = [each for each in groups if each.descriptor("memory_refused") >= 0]
        self.loose = group.loose

    def apply(self, limits: dict[str, Any]) -> list[str]:
        """Set cpu (cores), memory (bytes), pids; notes say what could not be set."""
        notes = []
        pids = limits.get("pids")
        results = {
            "memory": self.group.limit("memory_limit", limits.get("memory")),
            "pids": self.group.limit("pids_limit", None if pids is None else pids + RUNNERS_ALLOWANCE),
            "cpu": self.group.limit_cpu(limits.get("cpu")),
        }
        for name, done in results.items():
            if not done and limits.get(name) is not None:
                notes.append(
                    f"limits: {name} is not limited, its cgroup controller is not there or not writable"
                )
        return notes

    def counters(self) -> list[int]:
        """Files that count whom the kernel killed for memory in the container; the second one's are not its own.

        v2 counts those of the groups below, too. Whoever gets them closes them.
        """
        if self.container is None:
            return []
        groups = [self.container, self.group] if self.group.version == 2 else [self.container]
        found = [group.descriptor("memory_events") for group in groups]
        return [os.dup(fd) for fd in found] if min(found) >= 0 else []

    def remove(self) -> None:
        """Remove the group, and those above it that were made for it and are empty."""
        parts = self.path.split("/")
        self.group.close()
        if self.container is not None:
            self.container.close()
        for root, there in self._roots.items():
            gone = _remove_below(root, parts)
            # Not recursively: other sandboxes' groups are beside this one, and may be empty for a moment.
            for depth in range(len(parts) - 1, there, -1):
                gone = gone and _rmdir(root, "/".join(parts[:depth]))
            os.close(root)
        self._roots.clear()


def _rmdir(root: int, path: str) -> bool:
    try:
        os.rmdir(path, dir_fd=root)
    except OSError:
        return False
    return True


def _remove_below(root: int, parts: list[str]) -> bool:
    try:
        directory = os.open("/".join(parts[:-1]) or ".", DIRECTORY, dir_fd=root)
    except OSError:
        return False
    try:
        return remove_group(directory, parts[-1])
    finally:
        os.close(directory)


def make(root: int, path: str, *, enabled: bool) -> tuple[int, int]:
    """Make the groups of a path: the last one's directory, and how many were there before. Raises OSError."""
    directory, there = os.dup(root), 0
    for name in path.split("/"):
        if enabled:
            enable(directory)
        try:
            os.mkdir(name, dir_fd=directory)
        except FileExistsError:
            there += 1
        below = os.open(name, DIRECTORY, dir_fd=directory)
        os.close(directory)
        directory = below
    if enabled:
        enable(directory)
    return directory, there


def enable(directory: int) -> bool:
    """Give a group's children what it has of the controllers that limit them (v2); whether all could be given."""
    done = True
    try:
        there = read_file(directory, "cgroup.controllers").split()
    except OSError:
        return False
    for controller in CONTROLLERS:
        if controller in there:
            try:
                write_file(directory, "cgroup.subtree_control", f"+{controller}")
            except OSError:
                done = False
    return done


def find(home: Home, path: str | None) -> Sandbox | None:
    """Make the sandbox's group in every hierarchy that can be written; None where there is none."""
    if not path:
        return None
    path = path.strip("/")
    seen = mounts(home)
    roots: dict[int, int] = {}
    directories: dict[str, int] = {}
    for mount in seen:
        if mount.kind != "cgroup":
            continue
        wanted = [
            name for name in ("memory", "pids", "cpuacct", "cpu") if name in mount.super_options.split(",")
        ]
        wanted = [name for name in wanted if name not in directories]
        if not wanted:
            continue
        try:
            root = os.open(mount.point, DIRECTORY)
        except OSError:
            continue
        try:
            made, roots[root] = make(root, path, enabled=False)
        except OSError:
            os.close(root)
            continue
        directories |= dict.fromkeys(wanted, made)
    if "memory" in directories or "pids" in directories:
        _beside(seen, path, roots=roots, directories=directories)
        return Sandbox(group=Group(version=1, name="", directories=directories), path=path, roots=roots)
    for fd in {*roots, *directories.values()}:
        os.close(fd)
    for mount in seen:
        if mount.kind == "cgroup2":
            return _find_v2(mount.point, path)
    return None


def _beside(seen: list[Mount], path: str, *, roots: dict[int, int], directories: dict[str, int]) -> None:
    """A group of version 2 as well, where it is mounted beside version 1: only there can a network be limited."""
    for mount in seen:
        if mount.kind != "cgroup2":
            continue
        try:
            root = os.open(mount.point, DIRECTORY)
        except OSError:
            return
        try:
            directories["net"], roots[root] = make(root, path, enabled=False)
        except OSError:
            os.close(root)
        return


def _find_v2(point: str, path: str) -> Sandbox | None:
    try:
        root = os.open(point, DIRECTORY)
    except OSError:
        return None
    try:
        made, there = make(root, path, enabled=True)
        probe = "probe"
        os.mkdir(probe, dir_fd=made)
        os.rmdir(probe, dir_fd=made)
    except OSError:
        os.close(root)
        return None
    controllers = read_file(made, "cgroup.controllers").split()
    directories = {
        "cpuacct": made,
        "net": made,
        **{name: made for name in ("memory", "pids", "cpu") if name in controllers},
    }
    return Sandbox(group=Group(version=2, name="", directories=directories), path=path, roots={root: there})
