"""The directory on a pod's volume that holds writable layers: a fresh part for each root."""

from __future__ import annotations

import os

from . import syscalls
from .delete_tree import delete_tree
from .namespaces import Mount

# Mount point of the volume in the home's mounts: the executor uses /proc only by descriptor.
PLACE = "/proc"


class Store:
    """A mount of that directory, which every copy of the home's mounts inherits."""

    def __init__(self, path: str, *, resume: bool) -> None:
        """Open it in the sidecar's own mounts; `resume` continues with the newest part. Raises OSError."""
        os.makedirs(path, mode=0o700, exist_ok=True)
        self.bounded = _is_sized_tmpfs(path)  # the kernel enforces and counts the size
        info = os.statvfs(path)
        self.size = info.f_blocks * info.f_frsize
        self.directory = -1
        self._tree = syscalls.clone_tree(path)
        numbers = [int(name) for name in os.listdir(path) if name.isdigit()]
        self.number = max(numbers, default=0)
        self._resume = resume and bool(numbers)

    def attach(self) -> None:
        """Mount the store in the home's mounts; raises OSError."""
        syscalls.attach_tree(self._tree, PLACE)
        os.close(self._tree)
        self.directory = os.open(PLACE, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def mount_part(self, point: str) -> None:
        """Create the next root's part, with `upper` and `work`, and mount it at `point`. Raises OSError."""
        if not self._resume:
            self.number += 1
        part = f"{PLACE}/{self.number}"
        os.makedirs(f"{part}/upper", mode=0o755, exist_ok=True)
        if self._resume and os.path.isdir(f"{part}/work"):
            os.rename(f"{part}/work", f"{PLACE}/old-{os.urandom(8).hex()}")
        os.mkdir(f"{part}/work")
        self._resume = False
        # At a path without the number: the proof compares the mounts of all roots.
        syscalls.mount(part, point, None, syscalls.MS_BIND)

    def sweep(self) -> None:
        """Delete all parts but the newest; may take long."""
        os.fchdir(self.directory)
        for name in os.listdir(self.directory):
            if name != str(self.number):
                delete_tree(name)


def _is_sized_tmpfs(path: str) -> bool:
    """Return whether gVisor itself keeps the volume, which the pod's annotations request."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        found = [mount for mount in map(Mount, file.read().splitlines()) if mount.point == path]
    return bool(found) and found[-1].kind == "tmpfs" and "size=" in found[-1].super_options
