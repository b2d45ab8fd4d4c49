"""What is looked at after a reset to show that the sandbox equals a fresh one."""

from __future__ import annotations

import os

from .namespaces import mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .init import Init
    from .namespaces import Home
    from .rootfs import Root


class Fresh:
    """The picture of a fresh sandbox, taken once, and compared with later."""

    def __init__(self, *, home: Home) -> None:
        self.mounts = _mounts(home)

    def compare(
        self, *, home: Home, init: Init, root: Root, own_network: bool
    ) -> tuple[dict[str, Any], bool]:
        """The proof document and whether everything in it is as it was."""
        processes = [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
        proof = {
            "processes": processes,
            "upper_entries": root.entries() - root.fresh,
            "mounts_equal": _mounts(home) == self.mounts,
            "network_equal": _network_equal(home, init, own_network),
            "ipc_entries": _ipc_entries(),
        }
        equal = (
            not processes
            and proof["upper_entries"] == 0
            and proof["ipc_entries"] == 0
            and proof["mounts_equal"]
            and proof["network_equal"]
        )
        return proof, bool(equal)


def _mounts(home: Home) -> list[tuple[str, ...]]:
    return sorted(
        (mount.root, mount.point, mount.options, mount.kind, mount.source, mount.super_options)
        for mount in mounts(home)
        # A sysfs that shows a network of its own is there only with such a network.
        if not (mount.point == "/sys" or mount.point.startswith("/sys/"))
    )


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
