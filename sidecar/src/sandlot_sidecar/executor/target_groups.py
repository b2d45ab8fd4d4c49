"""Creates the sandbox's group below the groups of a pod's container, and joins those that allow no child."""

from __future__ import annotations

import errno
import os

from . import syscalls
from .cgroups import Sandbox, enable, is_delegated, make
from .group import Group
from .group_directories import DIRECTORY
from .group_files import read_file, write_file
from .namespaces import mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .namespaces import Home, Mount

NAME = "sandlot"
# Receives the container's own processes under v2, where a group with processes cannot delegate controllers.
CONTAINER_GROUP = "container"
MOVES = 5  # how often to move them: one that is moved may have forked meanwhile
WANTED = ("memory", "pids", "cpuacct", "cpu")
PLACE = "/sys"  # temporary mount point, for opening a directory of a hierarchy
# The mount options of v2. They belong to the hierarchy: in the machine's own cgroup namespace, a new mount sets all of
# them for the whole machine, and clears those that it does not name.
OPTIONS = (
    "nsdelegate",
    "favordynmods",
    "memory_localevents",
    "memory_recursiveprot",
    "memory_hugetlb_accounting",
    "pids_localevents",
)
# Where no mount shows them: those of systemd, so that a new mount changes nothing on its machines.
USUAL_OPTIONS = "nsdelegate,memory_recursiveprot"


def enter(home: Home, pid: int) -> Sandbox | None:
    """Create the sandbox's group, or join the container's groups where that fails; None if no limit is possible."""
    # Only in the container's cgroup namespace do its groups' paths match those in a mount. And only in the sidecar's
    # may a process move from the sidecar's group to the container's, or write the container's limits (`nsdelegate`).
    of_v1, of_v2 = home.in_cgroup_namespace(pid, lambda: _open_groups(home, pid))
    directories: dict[str, int] = {}
    roots: dict[int, int] = {}
    own: set[str] = set()
    container: Group | None = None
    for controllers, path, group in of_v1:
        wanted = [name for name in controllers.split(",") if name in WANTED]
        if wanted and (made := _make_child(group)) is not None:
            roots[group] = 0
            directories |= dict.fromkeys(wanted, made)
            own.add(path)
            if "memory" in wanted:
                container = Group(version=1, name="", directories={"memory": os.dup(group)})
        else:
            _join(group)
    if "memory" in directories or "pids" in directories:
        for path, group in of_v2:
            _add_v2(group, own=path in own, roots=roots, directories=directories)
        group = Group(version=1, name="", directories=directories)
        return Sandbox(group=group, path=NAME, roots=roots, container=container)
    for fd in {*roots, *directories.values()}:
        os.close(fd)
    return make_v2(of_v2[0][1]) if of_v2 else None


def _open_groups(home: Home, pid: int) -> tuple[list[tuple[str, str, int]], list[tuple[str, int]]]:
    """Open a process's groups: those of v1 with their controllers and paths, and the one of v2 with its path."""
    of_v1: list[tuple[str, str, int]] = []
    of_v2: list[tuple[str, int]] = []
    for line in home.read(f"{pid}/cgroup").decode().splitlines():
        number, controllers, path = line.split(":", 2)
        try:
            if number == "0":
                of_v2.append((path, open_v2(home, pid, path)))
            else:
                name = f"none,{controllers}" if "name=" in controllers else controllers
                of_v1.append((controllers, path, _open("cgroup", name, path)))
        except OSError:
            continue
    return of_v1, of_v2


def open_v2(home: Home, pid: int, path: str) -> int:
    """Open a group of v2, of the container with this process, without a change to the hierarchy. Raises OSError."""
    seen = _v2_mounts(home, "self")
    for mount in reversed(seen):
        if mount.root == "/" and mount.writable:
            try:
                group = os.open(f"{mount.point}/{path.strip('/')}", DIRECTORY)
            except OSError:
                continue
            # Another mount may cover this one.
            if os.access("cgroup.controllers", os.F_OK, dir_fd=group):
                return group
            os.close(group)
    seen += _v2_mounts(home, str(pid))
    if not seen:
        return _open("cgroup2", USUAL_OPTIONS, path)
    now = seen[0].super_options.split(",")
    return _open("cgroup2", ",".join(name for name in OPTIONS if name in now), path)


def _v2_mounts(home: Home, process: str) -> list[Mount]:
    return [mount for mount in mounts(home, process) if mount.kind == "cgroup2"]


def _open(kind: str, options: str | None, path: str) -> int:
    syscalls.mount("none", PLACE, kind, 0, options)
    try:
        return os.open(f"{PLACE}/{path.strip('/')}", DIRECTORY)
    finally:
        syscalls.umount(PLACE)


def _make_child(group: int) -> int | None:
    try:
        return make(group, NAME, enabled=False)[0]
    except OSError:
        return None


def _join(group: int) -> None:
    try:
        write_file(group, "cgroup.procs", "0")
    except OSError:
        pass
    os.close(group)


def _add_v2(group: int, *, own: bool, roots: dict[int, int], directories: dict[str, int]) -> None:
    """Create a v2 group too if v2 is mounted beside v1: only v2 has BPF programs that limit the network.

    If the container has no group of its `own` in v2, a child group would belong to several pods.
    """
    made = _make_child(group) if own else None
    if made is None:
        _join(group)
        return
    roots[group] = 0
    directories["net"] = made


def make_v2(root: int) -> Sandbox | None:
    """Create the sandbox's group below the container's v2 group; return None if the kernel refuses.

    `root`: the container's group, whose descriptor the caller leaves to this.
    """
    try:
        _delegate_controllers(root)
        # Otherwise an OOM kill of one op would end the whole container.
        if "memory" in read_file(root, "cgroup.controllers").split():
            write_file(root, "memory.oom.group", "0")
        made, there = make(root, NAME, enabled=True)
    except OSError:
        os.close(root)
        return None
    controllers = read_file(made, "cgroup.controllers").split()
    directories = {"cpuacct": made, "net": made, **{name: made for name in WANTED if name in controllers}}
    group = Group(version=2, name="", directories=directories)
    container = Group(version=2, name="", directories={"memory": os.dup(root)})
    return Sandbox(group=group, path=NAME, roots={root: there}, container=container)


def _delegate_controllers(group: int) -> None:
    """Delegate controllers to the group's children, after moving its processes to a child. Raises OSError."""
    if is_delegated(group):
        return
    for _ in range(MOVES):
        _move_processes(group)
        if enable(group):
            return
    raise OSError(errno.EBUSY, "the container's control group does not become free of processes")


def _move_processes(group: int) -> None:
    try:
        os.mkdir(CONTAINER_GROUP, dir_fd=group)
    except FileExistsError:
        pass
    aside = os.open(CONTAINER_GROUP, DIRECTORY, dir_fd=group)
    try:
        for pid in read_file(group, "cgroup.procs").split():
            try:
                write_file(aside, "cgroup.procs", pid)
            except OSError as error:
                if error.errno != errno.ESRCH:
                    raise
    finally:
        os.close(aside)
