"""Walks an overlay's upper layer while code in the sandbox changes it: each entry is opened once, then read from there.

Layers that are shared below it count as one with it, as the kernel merges them.

Code may swap a name at any moment. If an entry were opened again by its name, the archive would have what is in a
directory without the directory itself, and no sandbox could restore it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence

from .errors import LayerError
from .selection import Selection

OPAQUE = "trusted.overlay.opaque"
MAX_DEPTH = 1000  # each level keeps one directory of each layer open
MAX_ENTRIES = 2_000_000  # a gateway waits two minutes until all of them have been measured
ATTEMPTS = 3
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# What an open says if the name is of something else than a moment ago: a link, a pipe, a socket, a whiteout, nothing;
# or if code holds a lease on the file.
_REPLACED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EACCES, errno.EAGAIN)


# Of a name that is gone with its directory: what it hid stays hidden.
_DELETION = os.stat_result((stat.S_IFCHR, 0, 0, 1, 0, 0, 0, 0, 0, 0), {"st_rdev": 0, "st_mtime_ns": 0})


class Entry:
    """One entry of the layer. `fd` is open for files and directories, and -1 for others; `target` is of links.

    `hides`: a directory that hides the image's, also if the layer does not mark it so.
    """

    __slots__ = ("fd", "hides", "info", "path", "target")

    def __init__(self, *, path: str, info: os.stat_result, fd: int = -1, target: str = "") -> None:
        self.path = path
        self.info = info
        self.fd = fd
        self.target = target
        self.hides = False


class _Level:
    """The directories of one path, the uppermost layer's first, and the names that are left.

    `place`: the parent and the name of the first one, if it is of the layer that may change and has a parent.
    """

    __slots__ = ("changes", "directories", "names", "place", "prefix", "upper")

    def __init__(
        self, directories: list[int], *, prefix: str, place: tuple[int, str] | None = None, changes: bool
    ) -> None:
        self.directories = directories
        self.prefix = prefix
        self.place = place
        self.changes = changes
        self.upper = set(os.listdir(directories[0])) if changes else set[str]()
        names = self.upper.union(*(os.listdir(each) for each in directories[int(changes) :]))
        self.names = sorted(names, reverse=True)

    def is_replaced(self) -> bool:
        """Return whether the first directory has lost its name.

        When code deletes a directory, the kernel first replaces it, then removes the deletions from the one replaced.
        """
        if self.place is None:
            return False
        parent, name = self.place
        try:
            now = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return True
        return not os.path.samestat(now, os.fstat(self.directories[0]))

    def close(self) -> None:
        for directory in self.directories:
            os.close(directory)


class Walk:
    """`skipped` counts entries that were replaced again and again, so that none of them could be read."""

    def __init__(self, tops: Sequence[int], selection: Selection, *, max_entries: int = MAX_ENTRIES) -> None:
        """`tops`: the uppermost layer first; only that one may change."""
        self._tops = tops
        self._selection = selection
        self._left = max_entries
        self.skipped = 0

    def __iter__(self) -> Iterator[Entry]:
        """Yield the selected entries, a directory before its contents; each is open until the next. Raises LayerError."""
        levels = [_Level([os.dup(top) for top in self._tops], prefix="", changes=True)]
        try:
            while levels:
                level = levels[-1]
                if not level.names:
                    levels.pop().close()
                    continue
                name = level.names.pop()
                found = self._opened(level, name)
                if found is None:
                    continue
                entry, below = found
                if below is not None:
                    levels.append(below)
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
            for level in levels:
                level.close()

    def _opened(self, level: _Level, name: str) -> tuple[Entry, _Level | None] | None:
        """Return what counts of all that has this name, and of a directory what is in it."""
        for _ in range(ATTEMPTS):
            found = self._uppermost(level, name)
            if found is None:
                return None
            entry, number = found
            if not stat.S_ISDIR(entry.info.st_mode):
                return entry, None
            directories = [entry.fd, *_directories_below(entry, level.directories[number + 1 :], name)]
            changes = level.changes and number == 0
            place = (level.directories[0], name) if changes else None
            below = _Level(directories, prefix=f"{entry.path}/", place=place, changes=changes)
            if not below.is_replaced():  # what it hides was in it while its names were read
                return entry, below
            below.close()
        self.skipped += 1
        return None

    def _uppermost(self, level: _Level, name: str) -> tuple[Entry, int] | None:
        """Return what counts of all that has this name, and the number of its layer."""
        for number, directory in enumerate(level.directories):
            path = level.prefix + name
            try:
                entry = self._entry(directory, name, path)
            except FileNotFoundError:
                if name in level.upper and number == 0 and level.is_replaced():
                    takes = self._selection.takes(path, _DELETION.st_mode)
                    return (Entry(path=path, info=_DELETION), 0) if takes else None
                continue
            return None if entry is None else (entry, number)
        return None

    def _entry(self, directory: int, name: str, path: str) -> Entry | None:
        """Return what has this name; None if it is not selected. Raises FileNotFoundError if nothing has."""
        for _ in range(ATTEMPTS):
            info = os.stat(name, dir_fd=directory, follow_symlinks=False)
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


def _directories_below(entry: Entry, directories: Sequence[int], name: str) -> list[int]:
    """Open what a directory is merged with in the layers below; note in it whether one of them ends that."""
    entry.hides = _is_opaque(entry.fd)
    opened: list[int] = []
    for directory in directories:
        if entry.hides:
            break
        try:
            opened.append(os.open(name, _DIRECTORY, dir_fd=directory))
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            entry.hides = True  # a file or a deletion there
        else:
            entry.hides = _is_opaque(opened[-1])
    return opened


def _is_opaque(directory: int) -> bool:
    try:
        return os.getxattr(directory, OPAQUE) == b"y"
    except OSError:
        return False
