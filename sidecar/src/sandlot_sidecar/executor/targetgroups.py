"""The groups of a pod's container: a group for the sandbox is made below them, the others are joined as they are."""

from __future__ import annotations

import errno
import os

from . import syscalls
from .cgroups import Sandbox, enable, make
from .group import DIRECTORY, Group, read_file, write_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .namespaces import Home

NAME = "sandlot"
# Where the container's own processes go under v2, which gives no controller to children of a group that has any.
ASIDE = "container"
WANTED = ("memory", "pids", "cpuacct", "cpu")
PLACE = "/sys"  # a hierarchy is mounted there for as long as it takes to open a directory of it


def enter(home: Home, pid: int) -> Sandbox | None:
    """Join the container's groups where no group below is made; None where none can be made."""
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
        if wanted and (made := _made(group)) is not None:
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
            _beside(of_v2, own=of_v2 in own, roots=roots, directories=directories)
        group = Group(version=1, name="", directories=directories)
        return Sandbox(group=group, path=NAME, roots=roots, container=container)
    for fd in {*roots, *directories.values()}:
        os.close(fd)
    return None if of_v2 is None else unified(of_v2)


def _open(kind: str, options: str | None, path: str) -> int:
    syscalls.mount("none", PLACE, kind, 0, options)
    try:
        return os.open(f"{PLACE}/{path.strip('/')}", DIRECTORY)
    finally:
        syscalls.umount(PLACE)


def _made(group: int) -> int | None:
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


def _beside(path: str, *, own: bool, roots: dict[int, int], directories: dict[str, int]) -> None:
    """Where version 2 is mounted beside version 1: a group in it as well, since only there a network can be limited.

    Where the container has no group of its `own` in it, a group below would be one for several pods.
    """
    try:
        group = _open("cgroup2", None, path)
    except OSError:
        return
    made = _made(group) if own else None
    if made is None:
        _join(group)
        return
    roots[group] = 0
    directories["net"] = made


def unified(path: str) -> Sandbox | None:
    """The sandbox's group below the container's of v2; None where none can be made."""
    try:
        root = _open("cgroup2", None, path)
    except OSError:
        return None
    try:
        _free(root)
        # The whole container would die for one op's memory; the op is killed in its own group before.
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


def _free(group: int) -> None:
    """Let the group give controllers to its children: its own processes move aside. Raises OSError."""
    if enable(group):
        return
    try:
        os.mkdir(ASIDE, dir_fd=group)
    except FileExistsError:
        pass
    aside = os.open(ASIDE, DIRECTORY, dir_fd=group)
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
