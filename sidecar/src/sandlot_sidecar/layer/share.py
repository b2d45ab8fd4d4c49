"""Copies a sandbox's changes into a file system in memory that other sandboxes mount below their own changes.

The file system lies in a mount namespace of this process that has nothing else. Who opens that namespace keeps the copy;
the kernel frees it with the last holder and the last root over it.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

from ..executor import syscalls
from ..executor.layers import MOUNT_POINTS
from ..executor.shared import PLACE
from .attributes import attribute_bytes, attributes
from .errors import LayerError
from .selection import EVERYTHING
from .walk import Entry, Walk

_PLACE = "/sys"  # for a moment, of the file system
_AT_ONCE = 64 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def copy(tops: list[int], *, entries: int, room: int) -> tuple[int, int]:
    """Copy the layers into `room` bytes of memory; return the entries and bytes. Raises LayerError and OSError.

    `entries`: as many as were measured. LayerError `no_room` or `unsupported`: it could be an archive.
    """
    _enter_new_file_system(room, files=2 * entries + 1024)
    os.mkdir(PLACE)
    top = os.open(PLACE, _DIRECTORY)
    try:
        copier = _Copier(top)
        walk = Walk(tops, EVERYTHING)
        for entry in walk:
            copier.add(entry)
        copier.finish()
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.ENOMEM):
            raise LayerError("no_room", "the files grew while they were copied") from error
        raise
    finally:
        os.close(top)
    if walk.skipped:
        text = f"{walk.skipped} entries are not in the copy: code replaced them faster than they can be read"
        sys.stderr.write(f"sandlot_sidecar.layer: {text}\n")
    return copier.entries, copier.bytes


def refuse_link(entry: Entry) -> None:
    """Raise LayerError if an entry has another name, too: a write to either would not show in the other one.

    The kernel copies the file up by the name that is written to, and the other names stay with the layer below.
    """
    mode = entry.info.st_mode
    if entry.info.st_nlink > 1 and (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISFIFO(mode)):
        text = f"/{entry.path} has several names (hard links), which only an archive keeps together"
        raise LayerError("unsupported", text)


def _enter_new_file_system(size: int, *, files: int) -> None:
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    options = f"size={size},nr_inodes={files},mode=700"
    syscalls.mount("sandlot", _PLACE, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
    syscalls.change_root(_PLACE)


class _Level:
    """An open directory of the copy, and the entry to finish it with once its contents are complete."""

    __slots__ = ("attributes", "fd", "info", "name")

    def __init__(self, name: str, fd: int, *, info: os.stat_result, attributes: dict[str, bytes]) -> None:
        self.name = name
        self.fd = fd
        self.info = info
        self.attributes = attributes


class _Copier:
    """Writes entries one by one, a directory before its contents."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._levels: list[_Level] = []
        self.entries = 0
        self.bytes = 0

    def add(self, entry: Entry) -> None:
        refuse_link(entry)
        above, _, name = entry.path.rpartition("/")
        if not above and name in MOUNT_POINTS:
            raise LayerError(
                "unreadable", f"/{name} is a mount point of each sandbox: move its files elsewhere"
            )
        directory = self._enter(above)
        mode = entry.info.st_mode
        if stat.S_ISDIR(mode):
            self._directory(directory, name, entry)
        elif stat.S_ISREG(mode):
            self._file(directory, name, entry)
        elif stat.S_ISLNK(mode):
            os.symlink(entry.target, name, dir_fd=directory)
            _finish_name(directory, name, entry.info)
        elif stat.S_ISFIFO(mode):
            os.mkfifo(name, stat.S_IMODE(mode), dir_fd=directory)
            _finish_name(directory, name, entry.info)
        elif stat.S_ISCHR(mode) and entry.info.st_rdev == 0:
            os.mknod(name, stat.S_IFCHR, 0, dir_fd=directory)  # a deletion
        else:
            return  # sockets belong to their process; devices cannot be made in a sandbox
        self.entries += 1

    def finish(self) -> None:
        while self._levels:
            self._leave()

    def _enter(self, path: str) -> int:
        """Return the open directory, after finishing those that the walk has left."""
        depth = path.count("/") + 1 if path else 0
        while len(self._levels) > depth:
            self._leave()
        return self._levels[-1].fd if self._levels else self._top

    def _leave(self) -> None:
        level = self._levels.pop()
        try:
            _finish(level.fd, level.info, level.attributes)
        finally:
            os.close(level.fd)

    def _directory(self, parent: int, name: str, entry: Entry) -> None:
        found = attributes(entry)
        os.mkdir(name, 0o700, dir_fd=parent)
        fd = os.open(name, _DIRECTORY, dir_fd=parent)
        self._levels.append(_Level(name, fd, info=os.fstat(entry.fd), attributes=found))
        self.bytes += attribute_bytes(found)

    def _file(self, directory: int, name: str, entry: Entry) -> None:
        info = os.fstat(entry.fd)
        found = attributes(entry)
        fd = os.open(name, _NEW, 0o600, dir_fd=directory)
        try:
            os.ftruncate(fd, info.st_size)
            _copy_data(entry.fd, fd, size=info.st_size)
            _finish(fd, info, found)
        finally:
            os.close(fd)
        self.bytes += info.st_size + attribute_bytes(found)


def _copy_data(source: int, target: int, *, size: int) -> None:
    """Copy what a file has below `size`, without its holes; what is missing by then stays zero."""
    at = 0
    while at < size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
            end = min(size, os.lseek(source, at, os.SEEK_HOLE))
        except OSError as error:
            if error.errno == errno.ENXIO:  # no data any more
                return
            raise
        os.lseek(target, at, os.SEEK_SET)
        while at < end:
            sent = os.sendfile(target, source, at, min(_AT_ONCE, end - at))
            if not sent:
                return
            at += sent


def _finish(fd: int, info: os.stat_result, found: dict[str, bytes]) -> None:
    """Set owner, mode, attributes and times, in an order in which none undoes another."""
    os.fchown(fd, info.st_uid, info.st_gid)
    os.fchmod(fd, stat.S_IMODE(info.st_mode))
    for name, value in found.items():
        os.setxattr(fd, name, value)
    os.utime(fd, ns=(info.st_mtime_ns, info.st_mtime_ns))


def _finish_name(directory: int, name: str, info: os.stat_result) -> None:
    os.chown(name, info.st_uid, info.st_gid, dir_fd=directory, follow_symlinks=False)
    os.utime(name, ns=(info.st_mtime_ns, info.st_mtime_ns), dir_fd=directory, follow_symlinks=False)
