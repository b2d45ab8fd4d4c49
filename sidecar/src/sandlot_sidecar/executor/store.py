"""The directory on a pod's volume that holds writable layers: a fresh part for each root."""

from __future__ import annotations

import os

from . import syscalls
from .delete_tree import FEW_ENTRIES, delete_little_tree, delete_tree
from .namespaces import Mount

# Mount point of the volume in the home's mounts: the executor uses /proc only by descriptor.
PLACE = "/proc"
_AHEAD = "next-"  # a part that has no owner's files yet: a restart must not continue with it


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
        names = os.listdir(path)
        self.number = max(
            (int(name) for name in names if name.isdigit()), default=0
        )  # of the current root's part
        self._last = max(map(_number, names), default=0)
        self._resume = resume and self.number > 0

    def attach(self) -> None:
        """Mount the store in the home's mounts; raises OSError."""
        syscalls.attach_tree(self._tree, PLACE)
        os.close(self._tree)
        self.directory = os.open(PLACE, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def mount_part(self, point: str, *, ahead: bool = False) -> int:
        """Create a root's part, with `upper` and `work`, mount it at `point`, and return its number. Raises OSError.

        `ahead`: the root is built before its generation begins, see `use`.
        """
        number, part = self._make_part(ahead=ahead)
        # At a path without the number: the proof compares the mounts of all roots.
        syscalls.mount(part, point, None, syscalls.MS_BIND)
        return number

    def clone_part(self) -> tuple[int, int]:
        """Create a root's part as `mount_part` does; return its number and a detached mount of it. Raises OSError."""
        number, part = self._make_part(ahead=False)
        return number, syscalls.clone_tree(part)

    def _make_part(self, *, ahead: bool) -> tuple[int, str]:
        resume, self._resume = self._resume, False
        if not resume:
            self._last += 1
        number = self.number if resume else self._last
        part = f"{PLACE}/{_AHEAD if ahead else ''}{number}"
        os.makedirs(f"{part}/upper", mode=0o755, exist_ok=True)
        if resume and os.path.isdir(f"{part}/work"):
            os.rename(f"{part}/work", f"{PLACE}/old-{os.urandom(8).hex()}")
        os.mkdir(f"{part}/work")
        if not ahead:
            self.number = number
        return number, part

    def use(self, number: int) -> None:
        """Make a part that was created ahead the current one; raises OSError."""
        os.rename(f"{_AHEAD}{number}", str(number), src_dir_fd=self.directory, dst_dir_fd=self.directory)
        self.number = number

    def sweep(self) -> None:
        """Delete all parts before the current one; may take long."""
        os.fchdir(self.directory)
        for name in self._earlier():
            delete_tree(name)

    def sweep_little(self) -> bool:
        """Delete all parts before the current one if they hold little; return whether none is left."""
        left: int | None = FEW_ENTRIES
        try:
            for name in self._earlier():
                left = delete_little_tree(name, directory=self.directory, entries=left)
                if left is None:
                    return False
        except OSError:  # a forked `sweep` goes on, or will report the error
            return False
        return True

    def _earlier(self) -> list[str]:
        # Not later ones: another process may create or use one meanwhile.
        return [name for name in os.listdir(self.directory) if _number(name) < self.number]


def _number(name: str) -> int:
    """Return the number of a part, or 0 for other names."""
    digits = name.removeprefix(_AHEAD)
    return int(digits) if digits.isdigit() else 0


def _is_sized_tmpfs(path: str) -> bool:
    """Return whether gVisor itself keeps the volume, which the pod's annotations request."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        found = [mount for mount in map(Mount, file.read().splitlines()) if mount.point == path]
    return bool(found) and found[-1].kind == "tmpfs" and "size=" in found[-1].super_options
