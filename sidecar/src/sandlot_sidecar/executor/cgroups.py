"""Creates the sandbox's control groups under cgroup v1 or v2, sets their limits, and removes them."""

from __future__ import annotations

import errno
import os

from .group import Group
from .group_directories import DIRECTORY, remove_group
from .group_files import read_file, write_file
from .namespaces import Home, mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .namespaces import Mount

# Added to the sandbox's process limit for the runners themselves (64 busy ones and some idle).
RUNNERS_ALLOWANCE = 80
CONTROLLERS = ("memory", "pids", "cpu")


def with_runners(pids: int | None) -> int | None:
    """Return a sandbox's process limit with room for its runners; None: no limit."""
    return None if pids is None else pids + RUNNERS_ALLOWANCE


class Sandbox:
    """The sandbox's own group, created at `cgroup_parent`."""

    def __init__(
        self, *, group: Group, path: str, roots: dict[int, int], container: Group | None = None
    ) -> None:
        self.group = group
        self.container = container  # the parent group, of a pod's container
        self.path = path
        self._roots = roots  # hierarchy's root directory -> leading parts of the path that existed before
        # The groups whose memory limit is the sandbox's; opens their files that count how often it was reached.
        groups = [group] if container is None else [group, container]
        self.limiting = [each for each in groups if each.descriptor("memory_refused") >= 0]
        self.unenforced = group.unenforced

    def apply(self, limits: dict[str, Any]) -> list[str]:
        """Set cpu (cores), memory (bytes) and pids; return notes on those that could not be set."""
        notes = []
        results = {
            "memory": self.group.limit("memory_limit", limits.get("memory")),
            "pids": self.group.limit("pids_limit", with_runners(limits.get("pids"))),
            "cpu": self.group.limit_cpu(limits.get("cpu")),
        }
        for name, done in results.items():
            if not done and limits.get(name) is not None:
                notes.append(
                    f"limits: {name} is not limited, its cgroup controller is missing or not writable"
                )
        return notes

    def counters(self) -> list[int]:
        """Return duplicates of the files that count the container's OOM kills.

        v2 also counts child groups' kills: the second file, the sandbox's, is to be subtracted.
        """
        if self.container is None:
            return []
        groups = [self.container, self.group] if self.group.version == 2 else [self.container]
        found = [group.descriptor("memory_events") for group in groups]
        return [os.dup(fd) for fd in found] if min(found) >= 0 else []

    def remove(self) -> None:
        """Remove the group, and its parents that were created for it and are empty."""
        parts = self.path.split("/")
        self.group.close()
        if self.container is not None:
            self.container.close()
        for root, there in self._roots.items():
            gone = _remove_below(root, parts)
            # Not recursively: sibling groups of other sandboxes may be empty for a moment.
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
    """Create the groups of a path; return the last one's directory, and how many existed before. Raises OSError."""
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
    """Delegate the limiting controllers to a group's children (v2); return whether all could be."""
    done = True
    try:
        there = read_file(directory, "cgroup.controllers").split()
    except OSError:
        return False
    for controller in CONTROLLERS:
        if controller in there:
            try:
                write_file(directory, "cgroup.subtree_control", f"+{controller}")
            except OSError as error:
                done = False
                # The group has processes. With pids or cpu alone, it would become the root of a threaded subtree,
                # whose children no process can join.
                if error.errno == errno.EBUSY:
                    break
    return done


def is_delegated(directory: int) -> bool:
    """Return whether a group's children have all limiting controllers that the group has (v2); raises OSError."""
    there, delegated = (
        set(read_file(directory, f"cgroup.{name}").split()).intersection(CONTROLLERS)
        for name in ("controllers", "subtree_control")
    )
    return there <= delegated


def find(home: Home, path: str | None) -> Sandbox | None:
    """Create the sandbox's group in every writable hierarchy; return None if there is none."""
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
        _add_v2(seen, path, roots=roots, directories=directories)
        return Sandbox(group=Group(version=1, name="", directories=directories), path=path, roots=roots)
    for fd in {*roots, *directories.values()}:
        os.close(fd)
    for mount in seen:
        if mount.kind == "cgroup2":
            return _find_v2(mount.point, path)
    return None


def _add_v2(seen: list[Mount], path: str, *, roots: dict[int, int], directories: dict[str, int]) -> None:
    """Create a v2 group too if v2 is mounted beside v1: only v2 has BPF programs that limit the network."""
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
