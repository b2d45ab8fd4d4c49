"""Creates the sandbox's group below the groups of a pod's container, and joins those that allow no child."""

from __future__ import annotations

import errno
import os

from . import syscalls
from .cgroups import Sandbox, enable, make
from .group import Group, read_file, write_file
from .group_directories import DIRECTORY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .namespaces import Home

NAME = "sandlot"
# Receives the container's own processes under v2, where a group with processes cannot delegate controllers.
CONTAINER_GROUP = "container"
WANTED = ("memory", "pids", "cpuacct", "cpu")
PLACE = "/sys"  # temporary mount point, for opening a directory of a hierarchy


def enter(home: Home, pid: int) -> Sandbox | None:
    """Create the sandbox's group, or join the container's groups where that fails; None if no limit is possible."""
    lines = [line.split(":", 2) for line in home.read(f"{pid}/cgroup").decode().splitlines()]
    directories: dict[str, int] = {}
    roots: dict[int, int] = {}
    own: set[str] = set()
    container: Group | None = None
    for number, controllers, path in lines:
        if number == "0":
            continue
        try:
            group = _open(
                "cgroup", controllers if "name=" not in controllers else f"none,{controllers}", path
            )
        except OSError:
            continue
        wanted = [name for name in controllers.split(",") if name in WANTED]
        if wanted and (made := _make_child(group)) is not None:
            roots[group] = 0
            directories |= dict.fromkeys(wanted, made)
            own.add(path)
            if "memory" in wanted:
                container = Group(version=1, name="", directories={"memory": os.dup(group)})
        else:
            _join(group)
    of_v2 = next((path for number, _, path in lines if number == "0"), None)
    if "memory" in directories or "pids" in directories:
        if of_v2 is not None:
            _add_v2(of_v2, own=of_v2 in own, roots=roots, directories=directories)
        group = Group(version=1, name="", directories=directories)
        return Sandbox(group=group, path=NAME, roots=roots, container=container)
    for fd in {*roots, *directories.values()}:
        os.close(fd)
    return None if of_v2 is None else make_v2(of_v2)


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


def _add_v2(path: str, *, own: bool, roots: dict[int, int], directories: dict[str, int]) -> None:
    """Create a v2 group too if v2 is mounted beside v1: only v2 has BPF programs that limit the network.

    If the container has no group of its `own` in v2, a child group would belong to several pods.
    """
    try:
        group = _open("cgroup2", None, path)
    except OSError:
        return
    made = _make_child(group) if own else None
    if made is None:
        _join(group)
        return
    roots[group] = 0
    directories["net"] = made


def make_v2(path: str) -> Sandbox | None:
    """Create the sandbox's group below the container's v2 group; return None if the kernel refuses."""
    try:
        root = _open("cgroup2", None, path)
    except OSError:
        return None
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
    if enable(group):
        return
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
    enable(group)
