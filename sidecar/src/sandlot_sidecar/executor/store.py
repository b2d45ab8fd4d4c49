"""The directory of a pod's volume that holds what a sandbox changes: a fresh part for each root that is built."""

from __future__ import annotations

import os

from . import syscalls
from .delete_tree import delete_tree
from .namespaces import Mount

# Where the volume is in the mounts the executor comes home to: nobody looks for /proc there by its path.
PLACE = "/proc"


class Store:
    """A mount of that directory, which every copy of the home's mounts has."""

    def __init__(self, path: str, *, resume: bool) -> None:
        """Open it in the sidecar's own mounts; `resume` goes on with the newest part. Raises OSError."""
        os.makedirs(path, mode=0o700, exist_ok=True)
        self.bounded = _is_sized_tmpfs(
            path
        )  # the kernel refuses what is too much, and knows how much there is
        info = os.statvfs(path)
        self.size = info.f_blocks * info.f_frsize
        self.directory = -1
        self._tree = syscalls.clone_tree(path)
        numbers = [int(name) for name in os.listdir(path) if name.isdigit()]
        self.number = max(numbers, default=0)
        self._resume = resume and bool(numbers)

    def attach(self) -> None:
        """Mount it in the mounts that are the home from now on; raises OSError."""
        syscalls.attach_tree(self._tree, PLACE)
        os.close(self._tree)
        self.directory = os.open(PLACE, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def mount_part(self, point: str) -> None:
        """Make the part of the root to be built, with `upper` and `work`, and mount it. Raises OSError."""
        if not self._resume:
            self.number += 1
        part = f"{PLACE}/{self.number}"
        os.makedirs(f"{part}/upper", mode=0o755, exist_ok=True)
        if self._resume and os.path.isdir(f"{part}/work"):
            os.rename(f"{part}/work", f"{PLACE}/old-{os.urandom(8).hex()}")
        os.mkdir(f"{part}/work")
        self._resume = False
        # Under a path without the number: all roots are to have equal mounts.
        syscalls.mount(part, point, None, syscalls.MS_BIND)

    def sweep(self) -> None:
        """Delete all parts but the newest; takes as long as it takes."""
        os.fchdir(self.directory)
        for name in os.listdir(self.directory):
            if name != str(self.number):
                delete_tree(name)


def _is_sized_tmpfs(path: str) -> bool:
    """Whether gVisor keeps the volume itself: the pod's annotations have come through to it."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        found = [mount for mount in map(Mount, file.read().splitlines()) if mount.point == path]
    return bool(found) and found[-1].kind == "tmpfs" and "size=" in found[-1].super_options
