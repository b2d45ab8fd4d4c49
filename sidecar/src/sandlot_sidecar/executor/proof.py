"""What is read after a reset, and compared with what was read before the first claim: is the sandbox a fresh one?"""

from __future__ import annotations

import os

from . import picture
from .namespaces import mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .init import Init
    from .namespaces import Home, Mount
    from .rootfs import Root


MOST_NAMED = 10
MOST_OF_A_NAME = 200


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
        groups: list[str],
    ) -> tuple[dict[str, Any], bool]:
        """The proof document and whether everything in it is as it was. Raises OSError.

        `before`: the /proc of the generation before, `groups`: control groups of its commands that are left.
        """
        files, now = picture.take(root), _mounts(home)
        above = f"{picture.UPPER}/"
        processes = [*_processes(), *_left_in(before)]
        upper = sum(path.startswith(above) and path not in self.files for path in files)
        changed = [
            path for path in files.keys() | self.files.keys() if files.get(path) != self.files.get(path)
        ]
        moved = _moved(self.mounts, now)
        network, ipc, names = _network_equal(home, init, own_network), _ipc_entries(), _names()
        differences = [
            *(f"process {pid}" for pid in processes),
            *(f"file {path}: {_how(self.files.get(path), files.get(path))}" for path in sorted(changed)),
            *(f"mount {text}" for text in moved),
            *([] if network else ["network"]),
            *(f"ipc {text}" for text in ipc),
            *([] if names == self.names else [f"hostname {names[0]}"]),
            *(f"control group {name}" for name in groups),
        ]
        proof = {
            "processes": processes,
            "upper_entries": upper,
            "files_equal": not changed,
            "mounts_equal": not moved,
            "network_equal": network,
            "ipc_entries": len(ipc),
            "hostname_equal": names == self.names,
            "groups": len(groups),
            # The names are of hostile code's choice, and as many as it likes.
            "differences": [_printable(text)[:MOST_OF_A_NAME] for text in differences[:MOST_NAMED]],
        }
        return proof, not differences


def _printable(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def _how(before: Any, after: Any) -> str:
    if before is None or after is None:
        return "is new" if before is None else "has gone"
    names = ("mode", "owner", "group", "device", "content", "attributes")
    return ", ".join(name for name, one, other in zip(names, before, after, strict=True) if one != other)


def _moved(before: list[tuple[str, ...]], now: list[tuple[str, ...]]) -> list[str]:
    """Mounts that came, went or changed. One that the machine took away with its directory cannot be had again."""
    gone = [mount for mount in _without(before, now) if os.path.lexists(mount[1])]
    return [
        *(f"{mount[1]}: has gone: {' '.join(mount)}" for mount in gone),
        *(f"{mount[1]}: is new: {' '.join(mount)}" for mount in _without(now, before)),
    ]


def _without(these: list[tuple[str, ...]], those: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Of the same mount twice here and once there, one."""
    left, found = list(those), []
    for mount in these:
        if mount in left:
            left.remove(mount)
        else:
            found.append(mount)
    return found


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def _left_in(before: int) -> list[int]:
    """Processes of a namespace that should have none. All others of the machine need not be looked at for that."""
    return [int(name) for name in os.listdir(before) if name.isdigit()]


def _mounts(home: Home) -> list[tuple[str, ...]]:
    return sorted(
        (mount.root, mount.point, mount.options, mount.kind, mount.source, _unsized(mount))
        for mount in mounts(home)
        # A sysfs that shows a network of its own is there only with such a network.
        if not (mount.point == "/sys" or mount.point.startswith("/sys/"))
    )


def _unsized(mount: Mount) -> str:
    """The options of a file system; without the size that each claim's limit of memory gives to /dev/shm."""
    options = mount.super_options.split(",")
    return ",".join(each for each in options if mount.point != "/dev/shm" or not each.startswith("size="))


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


def _ipc_entries() -> list[str]:
    found: list[str] = []
    for name in ("msg", "sem", "shm"):
        try:
            with open(f"/proc/sysvipc/{name}", "rb") as file:
                found += [name] * (len(file.readlines()) - 1)
        except FileNotFoundError:
            continue
    try:
        found += [f"/dev/mqueue/{name}" for name in os.listdir("/dev/mqueue")]
    except FileNotFoundError:
        pass
    return found + [f"/dev/shm/{name}" for name in os.listdir("/dev/shm")]
