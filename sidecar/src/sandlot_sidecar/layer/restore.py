"""Restores an archive of a layer into a fresh sandbox through its merged root, and never outside that root.

An archive is untrusted. Every path is walked name by name from the root's descriptor, no symlink is followed, no
other file system is entered (so neither /proc nor /sys nor /dev), and no existing file is opened for writing:
files are created anew.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from collections.abc import Callable
from typing import Any, BinaryIO
from urllib.parse import unquote

from .attributes import PAX_XATTR, is_kept
from .errors import LayerError
from .export import MTIME, record_bytes
from .selection import ABOVE
from .walk import MAX_DEPTH, OPAQUE

PIECE = 256 * 1024
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ZEROS = bytes(PIECE)


class _Level:
    """An open directory, and the member to finish it with once its contents are complete."""

    __slots__ = ("fd", "member", "name")

    def __init__(self, *, name: str, fd: int) -> None:
        self.name = name
        self.fd = fd
        self.member: tarfile.TarInfo | None = None


class Restorer:
    """Restores members one by one; `max_bytes` limits the total size of files."""

    def __init__(self, root: int, *, max_bytes: int | None) -> None:
        self._device = os.fstat(root).st_dev
        self._levels = [_Level(name="", fd=root)]
        self._left = max_bytes
        self._skipped: list[str] = []  # directories that are something else in the image, with a slash
        self.entries = 0
        self.bytes = 0

    def run(self, source: BinaryIO) -> None:
        """Restore the archive; on an error, what was restored so far stays. Raises LayerError and OSError."""
        try:
            with tarfile.open(fileobj=source, mode="r|gz") as opened:
                tar: Any = opened
                while (member := tar.next()) is not None:
                    self._put(tar, member)
                    self.entries += 1
                    tar.members.clear()  # unused here, and unbounded
        except (tarfile.TarError, EOFError, ValueError, OverflowError, MemoryError) as error:
            raise LayerError("bad_request", f"the archive is unreadable: {error!r}") from error
        while len(self._levels) > 1:
            self._leave()

    def _put(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        parts = _parts(member.name)
        if self._is_skipped(member.name) or (
            member.type == tarfile.LNKTYPE and self._is_skipped(member.linkname)
        ):
            return
        self._count(record_bytes(member.pax_headers))
        directory = self._enter(parts[:-1])
        name = parts[-1]
        if member.type == tarfile.DIRTYPE:
            self._directory(directory, name, member)
            return
        if member.type == tarfile.LNKTYPE:
            self._link(directory, name, member)
            return
        self._clear(directory, name)
        if member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and member.sparse is None:
            self._file(tar, directory, name, member)
        elif member.type == tarfile.SYMTYPE:
            os.symlink(member.linkname, name, dir_fd=directory)
            self._finish_name(directory, name, member)
        elif member.type == tarfile.FIFOTYPE:
            os.mkfifo(name, member.mode & 0o777, dir_fd=directory)
            self._finish_name(directory, name, member)
        elif not _is_whiteout(member):
            raise LayerError(
                "bad_request", f"the archive has a member of an unsupported type: {member.name[:200]!r}"
            )

    def _is_skipped(self, path: str) -> bool:
        return any(path.startswith(one) for one in self._skipped)

    def _count(self, size: int) -> None:
        if self._left is not None:
            self._left -= size
            if self._left < 0:
                raise LayerError(
                    "disk_full", "the archive exceeds the sandbox's disk: restore it with more disk"
                )

    # -- directories -----------------------------------------------------------------------------------------

    def _enter(self, parts: list[str]) -> int:
        """Return the open directory with these names; finish and close those that the archive has left."""
        same = 0
        for level, name in zip(self._levels[1:], parts, strict=False):
            if level.name != name:
                break
            same += 1
        while len(self._levels) - 1 > same:
            self._leave()
        for name in parts[same:]:
            self._levels.append(_Level(name=name, fd=self._open(self._levels[-1].fd, name)))
        return self._levels[-1].fd

    def _open(self, directory: int, name: str) -> int:
        try:
            fd = os.open(name, _DIRECTORY, dir_fd=directory)
        except OSError as error:
            raise LayerError(
                "bad_request", f"the archive cannot enter directory {name[:200]!r}: {error}"
            ) from error
        if os.fstat(fd).st_dev != self._device:
            os.close(fd)
            raise LayerError("bad_request", f"the archive enters another file system at {name[:200]!r}")
        return fd

    def _leave(self) -> None:
        level = self._levels.pop()
        try:
            if level.member is not None:
                _finish(level.fd, level.member)
        finally:
            os.close(level.fd)

    # -- members ---------------------------------------------------------------------------------------------

    def _directory(self, parent: int, name: str, member: tarfile.TarInfo) -> None:
        try:
            there = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            there = None
        if ABOVE in member.pax_headers:
            if there is None:
                os.mkdir(name, 0o755, dir_fd=parent)
            elif not stat.S_ISDIR(there.st_mode):
                # The image's stays: the selected path would be somewhere else, or nowhere.
                self._skipped.append(f"{member.name}/")
                return
            self._levels.append(_Level(name=name, fd=self._open(parent, name)))
            return
        opaque = member.pax_headers.get(PAX_XATTR + OPAQUE) == "y"
        if there is not None and (opaque or not stat.S_ISDIR(there.st_mode)):
            self._clear(parent, name)
            there = None
        if there is None:
            os.mkdir(name, 0o700, dir_fd=parent)
        level = _Level(name=name, fd=self._open(parent, name))
        level.member = member
        self._levels.append(level)

    def _file(self, tar: tarfile.TarFile, directory: int, name: str, member: tarfile.TarInfo) -> None:
        self._count(member.size)
        source = tar.extractfile(member)
        assert source is not None
        fd = os.open(name, _NEW, 0o600, dir_fd=directory)
        try:
            position = 0
            while data := source.read(PIECE):
                position += len(data)
                if data == _ZEROS:
                    os.lseek(fd, len(data), os.SEEK_CUR)  # keep holes sparse
                    continue
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
            if position != member.size:
                raise LayerError("bad_request", f"the archive is truncated in {member.name[:200]!r}")
            os.ftruncate(fd, position)
            _finish(fd, member)
        finally:
            os.close(fd)
        self.bytes += position

    def _link(self, directory: int, name: str, member: tarfile.TarInfo) -> None:
        *above, first = _parts(member.linkname)
        opened: list[int] = []
        try:
            place = self._levels[0].fd
            for part in above:
                place = self._open(place, part)
                opened.append(place)
            if not stat.S_ISREG(os.stat(first, dir_fd=place, follow_symlinks=False).st_mode):
                raise LayerError(
                    "bad_request", f"the archive links to something other than a file: {member.name[:200]!r}"
                )
            self._clear(directory, name)
            os.link(first, name, src_dir_fd=place, dst_dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError as error:
            raise LayerError(
                "bad_request", f"the archive links to a missing file: {member.name[:200]!r}"
            ) from error
        finally:
            for fd in opened:
                os.close(fd)

    def _finish_name(self, directory: int, name: str, member: tarfile.TarInfo) -> None:
        _chown(lambda: os.chown(name, member.uid, member.gid, dir_fd=directory, follow_symlinks=False))
        os.utime(name, ns=_times(member), dir_fd=directory, follow_symlinks=False)

    def _clear(self, directory: int, name: str) -> None:
        """Remove whatever has this name."""
        try:
            os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            return
        except IsADirectoryError:
            self._clear_tree(directory, name)

    def _clear_tree(self, directory: int, name: str) -> None:
        fd = self._open(directory, name)
        stack = [(name, fd, os.listdir(fd))]
        try:
            while stack:
                current, fd, left = stack[-1]
                if not left:
                    os.close(stack.pop()[1])
                    os.rmdir(current, dir_fd=stack[-1][1] if stack else directory)
                    continue
                entry = left.pop()
                try:
                    os.unlink(entry, dir_fd=fd)
                except IsADirectoryError:
                    below = self._open(fd, entry)
                    stack.append((entry, below, os.listdir(below)))
        finally:
            for _, fd, _ in stack:
                os.close(fd)


def _parts(path: str) -> list[str]:
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise LayerError("bad_request", f"the archive has an invalid path: {path[:200]!r}")
    if len(parts) > MAX_DEPTH + 1:
        raise LayerError("bad_request", f"the archive nests directories more than {MAX_DEPTH} deep")
    return parts


def _is_whiteout(member: tarfile.TarInfo) -> bool:
    return member.type == tarfile.CHRTYPE and member.devmajor == member.devminor == 0


def _times(member: tarfile.TarInfo) -> tuple[int, int]:
    whole, _, fraction = member.pax_headers.get(MTIME, "").partition(".")
    at = int(member.mtime * 1_000_000_000)
    if whole.isdecimal() and fraction.isdecimal():
        at = int(whole) * 1_000_000_000 + int(f"{fraction:0<9.9}")
    return at, at


def _chown(change: Callable[[], None]) -> None:
    try:
        change()
    except PermissionError:
        return  # not permitted: all files belong to the user anyway


def _finish(fd: int, member: tarfile.TarInfo) -> None:
    """Set owner, mode, attributes and times, in an order in which none undoes another."""
    _chown(lambda: os.fchown(fd, member.uid, member.gid))
    os.fchmod(fd, member.mode & 0o7777)
    for key, value in member.pax_headers.items():
        if key.startswith(PAX_XATTR):
            name = unquote(key[len(PAX_XATTR) :], errors="surrogateescape")
            if is_kept(name):
                _set(fd, name, value.encode("utf-8", "surrogateescape"))
    os.utime(fd, ns=_times(member))


def _set(fd: int, name: str, value: bytes) -> None:
    try:
        os.setxattr(fd, name, value)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        why = f"{name[:200]!r}: {error.strerror}"
        raise LayerError(
            "bad_request", f"the archive has an attribute that cannot be set here, {why}"
        ) from error
