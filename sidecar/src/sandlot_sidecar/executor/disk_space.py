"""Measures a sandbox's disk usage: from its own file system's counters, else with a walk of its files."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .namespaces import Home

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Even an empty file costs gVisor 2.8 KiB of the pod's memory, and Linux 1 KiB.
BYTES_PER_FILE = 4 << 10
MIN_FILES, MAX_FILES = 1 << 14, 1 << 18
MAX_COUNTED = 1 << 19  # files counted above the limit, to see whether they still grow
MAX_DEPTH = 500  # each level of the walk holds a descriptor open
MAX_DESCRIPTORS = 200_000  # checked per walk
FULL_BELOW = 128 << 10  # free bytes below which the disk counts as full
FULL_FILES = 16


def files_limit(disk: int | None) -> int:
    """Return the maximum number of files for a disk limit in bytes."""
    return MAX_FILES if disk is None else max(MIN_FILES, min(MAX_FILES, disk // BYTES_PER_FILE))


def space(place: int | str) -> tuple[int, int, int]:
    """Return the used bytes, size in bytes, and free inodes (-1: unlimited) of the file system of a file or path."""
    info = os.statvfs(place)
    free = info.f_ffree if info.f_files else -1
    return (info.f_blocks - info.f_bfree) * info.f_frsize, info.f_blocks * info.f_frsize, free


def is_full(fd: int) -> bool:
    """Return whether a file system is full, or nearly."""
    used, size, files = space(fd)
    return (size > 0 and size - used < max(FULL_BELOW, size >> 10)) or 0 <= files < FULL_FILES


def newest_inode(directory: int) -> int:
    """Return the next inode number, which counts file creations in gVisor's tmpfs: it reports no inode count."""
    name = f"count-{os.urandom(8).hex()}"
    fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        return os.fstat(fd).st_ino
    finally:
        os.close(fd)
        os.unlink(name, dir_fd=directory)


def layer_device() -> int:
    """Return the st_dev of files in the writable layer, which overlayfs assigns."""
    path = f"/.sandlot-{os.urandom(8).hex()}"
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)
        os.unlink(path)


class Walk:
    """Sums up files and bytes in bounded memory: stores only inodes with several links, and at most `most` files."""

    def __init__(self, *, most: int) -> None:
        self.bytes = 0
        self.files = 0
        self._most = most
        self._seen: set[int] = set()
        self._left = 0

    def add_tree(self, top: int) -> None:
        """Add a tree; nesting deeper than MAX_DEPTH counts as too many files."""
        stack = [os.dup(top)]
        levels = [os.scandir(stack[0])]
        try:
            while levels and self.files <= self._most:
                try:
                    entry = next(levels[-1], None)
                except OSError:
                    entry = None  # the directory was removed meanwhile
                if entry is None:
                    levels.pop().close()
                    os.close(stack.pop())
                    continue
                try:
                    info = entry.stat(follow_symlinks=False)
                    self.add(info)
                    if not stat.S_ISDIR(info.st_mode):
                        continue
                    if len(stack) == MAX_DEPTH:
                        self.files = self._most + 1
                        continue
                    inner = os.open(entry.name, DIRECTORY, dir_fd=stack[-1])
                except OSError:
                    continue
                stack.append(inner)
                levels.append(os.scandir(inner))
        finally:
            for level in levels:
                level.close()
            for fd in stack:
                os.close(fd)

    def add(self, info: os.stat_result, *, named: bool = True) -> None:
        """Add one file; hard links and several descriptors of a file count once."""
        if not named or (info.st_nlink != 1 and not stat.S_ISDIR(info.st_mode)):
            if info.st_ino in self._seen:
                return
            self._seen.add(info.st_ino)
        self.files += 1
        self.bytes += info.st_blocks * 512

    def add_deleted(self, home: Home, *, device: int) -> None:
        """Add deleted files on the device that are still open or mapped.

        A descriptor in flight through a socket is not found.
        """
        self._left = MAX_DESCRIPTORS
        for pid in home.pids():
            for place in ("fd", "map_files"):
                try:
                    directory = os.open(f"{pid}/{place}", DIRECTORY, dir_fd=home.proc)
                except OSError:
                    continue
                try:
                    self._add_deleted_in(directory, device)
                except OSError:
                    continue  # the process has exited, or is not accessible
                finally:
                    os.close(directory)

    def _add_deleted_in(self, directory: int, device: int) -> None:
        with os.scandir(directory) as entries:
            for entry in entries:
                self._left -= 1
                if self._left < 0 or self.files > self._most:
                    return
                try:
                    info = os.stat(entry.name, dir_fd=directory)
                    if info.st_dev != device or not stat.S_ISREG(info.st_mode):
                        continue
                    # gVisor keeps a link count of 1 for a deleted file.
                    link = entry.name
                    gone = info.st_nlink == 0 or os.readlink(link, dir_fd=directory).endswith(" (deleted)")
                except OSError:
                    continue
                if gone:
                    self.add(info, named=False)
