"""What is read after a reset, and compared with what was read before the first claim: is the sandbox a fresh one?"""

from __future__ import annotations

import os

from . import picture
from .namespaces import mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .group import Group
    from .init import Init
    from .namespaces import Home
    from .rootfs import Root


class Fresh:
    """The picture of a fresh sandbox, taken once, before anybody's code has run."""

    def __init__(self, *, home: Home, root: Root) -> None:
        """Raises OSError."""
        self.mounts = _mounts(home)
        self.files = picture.take(root)
        self.names = _names()

    def compare(
        self,
        *,
        home: Home,
        init: Init,
        before: int,
        root: Root,
        own_network: bool,
        group: Group | None,
        groups: str,
    ) -> tuple[dict[str, Any], bool]:
        """The proof document and whether everything in it is as it was. Raises OSError.

        `before`: the process namespace of the generation before, `group`: where its commands had groups of their own,
        whose names begin with `groups`.
        """
        files = picture.take(root)
        above = f"{picture.UPPER}/"
        proof = {
            "processes": [*_processes(), *_left_in(home, before)],
            "upper_entries": sum(path.startswith(above) and path not in self.files for path in files),
            "files_equal": files == self.files,
            "mounts_equal": _mounts(home) == self.mounts,
            "network_equal": _network_equal(home, init, own_network),
            "ipc_entries": _ipc_entries(),
            "hostname_equal": _names() == self.names,
            "groups": 0 if group is None else sum(name.startswith(groups) for name in group.below()),
        }
        counts = ("upper_entries", "ipc_entries", "groups", "processes")
        equal = all(not proof[name] for name in counts) and all(
            value for name, value in proof.items() if name not in counts
        )
        return proof, equal


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def _left_in(home: Home, namespace: int) -> list[int]:
    """Processes of a namespace that should have none; the open descriptor keeps its number from being used again."""
    number = os.fstat(namespace).st_ino
    found = []
    for pid in home.pids():
        try:
            if os.stat(f"{pid}/ns/pid", dir_fd=home.proc).st_ino == number:
                found.append(pid)
        except OSError:  # it has ended, or is somebody's whom this user may not look at
            continue
    return found


def _mounts(home: Home) -> list[tuple[str, ...]]:
    return sorted(
        (mount.root, mount.point, mount.options, mount.kind, mount.source, mount.super_options)
        for mount in mounts(home)
        # A sysfs that shows a network of its own is there only with such a network.
        if not (mount.point == "/sys" or mount.point.startswith("/sys/"))
    )


def _names() -> tuple[str, bytes]:
    try:
        with open("/proc/sys/kernel/domainname", "rb") as file:
            domain = file.read()
    except OSError:  # gVisor has none
        domain = b""
    return os.uname().nodename, domain


def _network_equal(home: Home, init: Init, own_network: bool) -> bool:
    if not own_network:
        return init.net_id == os.stat(home.net).st_ino
    with open("/proc/1/net/dev", encoding="ascii", errors="replace") as file:
        names = [line.partition(":")[0].strip() for line in file.readlines()[2:]]
    return names == ["lo"]


def _ipc_entries() -> int:
    count = 0
    for name in ("msg", "sem", "shm"):
        try:
            with open(f"/proc/sysvipc/{name}", "rb") as file:
                count += len(file.readlines()) - 1
        except FileNotFoundError:
            continue
    try:
        count += len(os.listdir("/dev/mqueue"))
    except FileNotFoundError:
        pass
    return count + len(os.listdir("/dev/shm"))
