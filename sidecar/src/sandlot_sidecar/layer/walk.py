"""Walks an overlay's upper layer while code in the sandbox changes it: each entry is opened once, then read from there.

Code may swap a name at any moment. If an entry were opened again by its name, the archive would have what is in a
directory without the directory itself, and no sandbox could restore it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from .errors import LayerError
from .selection import Selection

MAX_DEPTH = 1000  # each level keeps one directory open
MAX_ENTRIES = 2_000_000  # a gateway waits two minutes until all of them have been measured
ATTEMPTS = 3
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# What an open says if the name is of something else than a moment ago: a link, a pipe, a socket, a whiteout, nothing;
# or if code holds a lease on the file.
_REPLACED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EACCES, errno.EAGAIN)


class Entry:
    """One entry of the layer. `fd` is open for files and directories, and -1 for others; `target` is of links."""

    __slots__ = ("fd", "info", "path", "target")

    def __init__(self, *, path: str, info: os.stat_result, fd: int = -1, target: str = "") -> None:
        self.path = path
        self.info = info
        self.fd = fd
        self.target = target


class Walk:
    """`skipped` counts entries that were replaced again and again, so that none of them could be read."""

    def __init__(self, top: int, selection: Selection, *, max_entries: int = MAX_ENTRIES) -> None:
        self._top = top
        self._selection = selection
        self._left = max_entries
        self.skipped = 0

    def __iter__(self) -> Iterator[Entry]:
        """Yield the selected entries, a directory before its contents; each is open until the next. Raises LayerError."""
        levels = [(os.dup(self._top), _names(self._top), "")]
        try:
            while levels:
                directory, names, prefix = levels[-1]
                if not names:
                    os.close(levels.pop()[0])
                    continue
                name = names.pop()
                entry = self._entry(directory, name, prefix + name)
                if entry is None:
                    continue
                if stat.S_ISDIR(entry.info.st_mode):
                    levels.append((entry.fd, _names(entry.fd), f"{entry.path}/"))
                    if len(levels) > MAX_DEPTH:
                        raise LayerError("too_large", f"directories are nested more than {MAX_DEPTH} deep")
                try:
                    self._left -= 1
                    if self._left < 0:
                        raise LayerError("too_large", "there are too many files and directories: delete some")
                    yield entry
                finally:
                    if entry.fd >= 0 and not stat.S_ISDIR(entry.info.st_mode):
                        os.close(entry.fd)
        finally:
            for directory, _, _ in levels:
                os.close(directory)

    def _entry(self, directory: int, name: str, path: str) -> Entry | None:
        """Return what has this name; None if nothing has, or if it is not selected."""
        for _ in range(ATTEMPTS):
            try:
                info = os.stat(name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                return None
            if not self._selection.takes(path, info.st_mode):
                return None
            try:
                if stat.S_ISLNK(info.st_mode):
                    return Entry(path=path, info=info, target=os.readlink(name, dir_fd=directory))
                if not (stat.S_ISDIR(info.st_mode) or stat.S_ISREG(info.st_mode)):
                    return Entry(path=path, info=info)
                fd = os.open(name, _DIRECTORY if stat.S_ISDIR(info.st_mode) else _FILE, dir_fd=directory)
            except OSError as error:
                if error.errno not in (*_REPLACED, errno.EINVAL):  # EINVAL: it is no link any more
                    raise
                continue
            now = os.fstat(fd)
            if stat.S_IFMT(now.st_mode) == stat.S_IFMT(info.st_mode):
                return Entry(path=path, info=now, fd=fd)
            os.close(fd)
        self.skipped += 1
        return None


def _names(directory: int) -> list[str]:
    return sorted(set(os.listdir(directory)), reverse=True)
