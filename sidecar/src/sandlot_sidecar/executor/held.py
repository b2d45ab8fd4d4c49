"""How much of its disk a sandbox holds: asked of a file system of its own, else measured by a walk."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .namespaces import Home

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A file costs gVisor's kernel 2.8 KiB of the pod's memory and Linux 1 KiB, however little is in it.
BYTES_A_FILE = 4 << 10
FEWEST, MOST = 1 << 14, 1 << 18
COUNTED = 1 << 19  # where there are too many already, so many are counted, to tell whether they grow
DEEPEST = 500  # each level of the walk holds a descriptor
DESCRIPTORS = 200_000  # looked at by one walk
FULL_BELOW = 128 << 10  # bytes left that count as a full disk
FULL_FILES = 16


def files_limit(disk: int | None) -> int:
    """How many files a disk of so many bytes may hold."""
    return MOST if disk is None else max(FEWEST, min(MOST, disk // BYTES_A_FILE))


def space(fd: int) -> tuple[int, int, int]:
    """Bytes used, bytes there are, and files that may still be made (-1: no limit) in a file system."""
    info = os.fstatvfs(fd)
    free = info.f_ffree if info.f_files else -1
    return (info.f_blocks - info.f_bfree) * info.f_frsize, info.f_blocks * info.f_frsize, free


def is_full(fd: int) -> bool:
    """Whether a file system has less room left than a program notices."""
    used, size, files = space(fd)
    return (size > 0 and size - used < max(FULL_BELOW, size >> 10)) or 0 <= files < FULL_FILES


def newest(directory: int) -> int:
    """A number that grows by one with each file that gVisor's tmpfs makes: it counts none of them itself."""
    name = f"count-{os.urandom(8).hex()}"
    fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        return os.fstat(fd).st_ino
    finally:
        os.close(fd)
        os.unlink(name, dir_fd=directory)


def device() -> int:
    """The number that files of the writable layer have as their device: an overlay gives them one of its own."""
    path = f"/.sandlot-{os.urandom(8).hex()}"
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)
        os.unlink(path)


class Walk:
    """Sums up a tree. Its memory is bounded: of files with one link nothing is kept, and at `most` files it stops."""

    def __init__(self, *, most: int) -> None:
        self.bytes = 0
        self.files = 0
        self._most = most
        self._seen: set[int] = set()
        self._left = 0

    def tree(self, top: int) -> None:
        """All below a directory; nesting deeper than a walk can follow counts as too many files."""
        stack = [os.dup(top)]
        levels = [os.scandir(stack[0])]
        try:
            while levels and self.files <= self._most:
                try:
                    entry = next(levels[-1], None)
                except OSError:
                    entry = None  # the directory went away meanwhile
                if entry is None:
                    levels.pop().close()
                    os.close(stack.pop())
                    continue
                try:
                    info = entry.stat(follow_symlinks=False)
                    self.add(info)
                    if not stat.S_ISDIR(info.st_mode):
                        continue
                    if len(stack) == DEEPEST:
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
        """One file; a second name of the same file, or a second descriptor, counts once."""
        if not named or (info.st_nlink != 1 and not stat.S_ISDIR(info.st_mode)):
            if info.st_ino in self._seen:
                return
            self._seen.add(info.st_ino)
        self.files += 1
        self.bytes += info.st_blocks * 512

    def deleted(self, home: Home, *, device: int) -> None:
        """Files on the device that have no name any more and are held open, or mapped.

        A descriptor that is on its way through a socket is seen by nobody.
        """
        self._left = DESCRIPTORS
        for pid in home.pids():
            for place in ("fd", "map_files"):
                try:
                    directory = os.open(f"{pid}/{place}", DIRECTORY, dir_fd=home.proc)
                except OSError:
                    continue
                try:
                    self._deleted(directory, device)
                except OSError:
                    continue  # the process has ended, or is none of the sandbox's
                finally:
                    os.close(directory)

    def _deleted(self, directory: int, device: int) -> None:
        with os.scandir(directory) as entries:
            for entry in entries:
                self._left -= 1
                if self._left < 0 or self.files > self._most:
                    return
                try:
                    info = os.stat(entry.name, dir_fd=directory)
                    if info.st_dev != device or not stat.S_ISREG(info.st_mode):
                        continue
                    # gVisor leaves a deleted file its one link.
                    link = entry.name
                    gone = info.st_nlink == 0 or os.readlink(link, dir_fd=directory).endswith(" (deleted)")
                except OSError:
                    continue
                if gone:
                    self.add(info, named=False)
