"""Proves a reset: compares the sandbox's state after it with the state recorded before the first claim."""

from __future__ import annotations

import os

from .. import kernel
from . import file_snapshot, left_sockets
from .namespaces import is_below, mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .init import Init
    from .namespaces import Home, Mount
    from .root import Root


MAX_DIFFERENCES = 10
MAX_DIFFERENCE_LENGTH = 200


class FreshState:
    """The state of a fresh sandbox, recorded once, before any user code has run."""

    def __init__(self, *, home: Home, root: Root, beside: FreshState | None = None) -> None:
        """Record the current state; raises OSError. `beside`: an earlier one that only has another root."""
        self.mounts = _mounts(home)
        if beside is None:
            self.files = file_snapshot.take(root)
            self.names = _names()
            self.sockets = left_sockets.bound(home) if kernel.is_gvisor() else {}
        else:
            self.files = {**file_snapshot.layers(root), **beside.devices()}
            self.names, self.sockets = beside.names, beside.sockets

    def devices(self) -> dict[str, Any]:
        """Return the entries of /dev."""
        above = f"{file_snapshot.DEVICES}/"
        return {
            path: entry
            for path, entry in self.files.items()
            if path == file_snapshot.DEVICES or path.startswith(above)
        }

    def is_same_beside_root(self, home: Home) -> bool:
        """Return whether everything but the root, its layers and its mounts is as it was. Raises OSError."""
        return not (
            processes()
            or _ipc_entries()
            or _names() != self.names
            or file_snapshot.devices() != self.devices()
            or _beside_root(_mounts(home)) != _beside_root(self.mounts)
            or self.left_sockets(home)
        )

    def left_sockets(self, home: Home) -> list[str]:
        """Return the bound sockets that no process holds, which nothing but the pod's end takes away. Raises OSError."""
        return left_sockets.left(home, before=self.sockets) if kernel.is_gvisor() else []

    def has_same_mounts_beside_root(self, other: FreshState) -> bool:
        """Return whether both have the same mounts at and below /proc and /dev."""
        return _beside_root(self.mounts) == _beside_root(other.mounts)

    def compare(
        self,
        *,
        home: Home,
        init: Init,
        before: int | None,
        root: Root,
        own_network: bool,
        settled: Callable[[], list[str]],
    ) -> tuple[dict[str, Any], bool]:
        """Return the proof document, and whether the state is unchanged. Raises OSError.

        `before`: the previous generation's /proc, if there is one. `settled`: waits for the end of that generation's processes, whose
        kill has begun, and returns the remaining control groups of its commands.
        """
        files, now = file_snapshot.take(root), _mounts(home)
        above = f"{file_snapshot.UPPER}/"
        groups = settled()
        left = [*processes(), *(processes_in(before) if before is not None else [])]
        upper = sum(path.startswith(above) and path not in self.files for path in files)
        changed = [
            path for path in files.keys() | self.files.keys() if files.get(path) != self.files.get(path)
        ]
        moved = _mount_differences(self.mounts, now)
        network, ipc, names = _network_equal(home, init, own_network), _ipc_entries(), _names()
        # They are the pod's: while a generation is prepared, those of the current owner are there.
        sockets = self.left_sockets(home) if before is not None else []
        differences = [
            *(f"process {pid}" for pid in left),
            *(
                f"file {path}: {_difference(self.files.get(path), files.get(path))}"
                for path in sorted(changed)
            ),
            *(f"mount {text}" for text in moved),
            *([] if network else ["network"]),
            *(f"socket {text}" for text in sockets),
            *(f"ipc {text}" for text in ipc),
            *([] if names == self.names else [f"hostname {names[0]}"]),
            *(f"control group {name}" for name in groups),
        ]
        proof = {
            "processes": left,
            "upper_entries": upper,
            "files_equal": not changed,
            "mounts_equal": not moved,
            "network_equal": network and not sockets,
            "ipc_entries": len(ipc),
            "hostname_equal": names == self.names,
            "groups": len(groups),
            # Hostile code chooses the names and how many there are.
            "differences": [
                _printable(text)[:MAX_DIFFERENCE_LENGTH] for text in differences[:MAX_DIFFERENCES]
            ],
        }
        return proof, not differences


def _printable(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def _difference(before: Any, after: Any) -> str:
    if before is None or after is None:
        return "is new" if before is None else "has gone"
    names = ("mode", "owner", "group", "device", "content", "attributes")
    return ", ".join(name for name, one, other in zip(names, before, after, strict=True) if one != other)


def _mount_differences(before: list[tuple[str, ...]], now: list[tuple[str, ...]]) -> list[str]:
    """Describe added, removed and changed mounts; ignore those whose directory the host has removed."""
    gone = [mount for mount in _without(before, now) if os.path.lexists(mount[1])]
    return [
        *(f"{mount[1]}: has gone: {' '.join(mount)}" for mount in gone),
        *(f"{mount[1]}: is new: {' '.join(mount)}" for mount in _without(now, before)),
    ]


def _without(these: list[tuple[str, ...]], those: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the multiset difference: of a mount twice in `these` and once in `those`, one remains."""
    left, found = list(those), []
    for mount in these:
        if mount in left:
            left.remove(mount)
        else:
            found.append(mount)
    return found


def processes() -> list[int]:
    """Return the processes of the current generation beside its init."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def processes_in(before: int) -> list[int]:
    """Return the processes of a PID namespace, given its /proc, without scanning all of the host's."""
    return [int(name) for name in os.listdir(before) if name.isdigit()]


def _mounts(home: Home) -> list[tuple[str, ...]]:
    return sorted(
        (mount.root, mount.point, mount.options, mount.kind, mount.source, _options_without_size(mount))
        for mount in mounts(home)
        # The sandbox has its own sysfs only while it has its own network namespace.
        if not (mount.point == "/sys" or mount.point.startswith("/sys/"))
    )


def _beside_root(mounts: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [mount for mount in mounts if any(is_below(mount[1], point) for point in ("/proc", "/dev"))]


def _options_without_size(mount: Mount) -> str:
    """Return the file system options without the size of /dev/shm, which each claim's memory limit sets."""
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
