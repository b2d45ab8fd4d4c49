"""Writes an overlay's upper layer, or parts of it, as a compressed tar; whiteouts stay as the kernel has them."""

from __future__ import annotations

import os
import stat
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from .errors import LayerError
from .selection import ABOVE, EVERYTHING, Selection

MAX_DEPTH = 1000  # each level keeps one directory open
OPAQUE = "trusted.overlay.opaque"
CAPABILITY = "security.capability"
# These attributes refer to other files of this layer and to inodes of its image.
ELSEWHERE = ("trusted.overlay.redirect", "trusted.overlay.metacopy")
PAX_XATTR = "SCHILY.xattr."
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Entry:
    """One entry of the layer: its open parent directory, name, path from the top and stat result."""

    __slots__ = ("directory", "info", "name", "path")

    def __init__(self, *, directory: int, name: str, path: str, info: os.stat_result) -> None:
        self.directory = directory
        self.name = name
        self.path = path
        self.info = info


def walk(top: int, selection: Selection) -> Iterator[Entry]:
    """Yield the selected entries, a directory before its contents, skipping those that vanish. Raises LayerError."""
    levels: list[tuple[int, list[str], str]] = [(os.dup(top), sorted(os.listdir(top), reverse=True), "")]
    try:
        while levels:
            directory, names, prefix = levels[-1]
            if not names:
                os.close(levels.pop()[0])
                continue
            name = names.pop()
            try:
                info = os.stat(name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                continue
            path = prefix + name
            if not selection.takes(path, info.st_mode):
                continue
            yield Entry(directory=directory, name=name, path=path, info=info)
            if not stat.S_ISDIR(info.st_mode):
                continue
            if len(levels) >= MAX_DEPTH:
                raise LayerError("too_large", f"directories are nested more than {MAX_DEPTH} deep")
            try:
                below = os.open(name, _DIRECTORY, dir_fd=directory)
            except OSError:
                continue  # replaced a moment ago
            levels.append((below, sorted(os.listdir(below), reverse=True), f"{path}/"))
    finally:
        for directory, _, _ in levels:
            os.close(directory)


def measure(top: int, selection: Selection) -> tuple[int, int]:
    """Return the number of entries and the total size of regular files in bytes. Raises LayerError."""
    count = size = 0
    for entry in walk(top, selection):
        count += 1
        if stat.S_ISREG(entry.info.st_mode):
            size += entry.info.st_size
        if stat.S_ISREG(entry.info.st_mode) or (
            stat.S_ISDIR(entry.info.st_mode) and not selection.is_above(entry.path)
        ):
            _check_readable(entry)
    return count, size


def open_entry(entry: Entry) -> int | None:
    """Open a file or directory; None if it vanished or was replaced a moment ago."""
    kind = _DIRECTORY if stat.S_ISDIR(entry.info.st_mode) else _FILE
    try:
        return os.open(entry.name, kind, dir_fd=entry.directory)
    except OSError:
        return None


def _check_readable(entry: Entry) -> None:
    fd = open_entry(entry)
    if fd is not None:
        try:
            _names(fd, path=entry.path)
        finally:
            os.close(fd)


class Gzip:
    """A writable file that compresses."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._packer = zlib.compressobj(1, zlib.DEFLATED, 31)

    def write(self, data: bytes) -> int:
        packed = self._packer.compress(data)
        if packed:
            self._out.write(packed)
        return len(data)

    def close(self) -> None:
        self._out.write(self._packer.flush())
        self._out.flush()


class _Exactly:
    """Reads exactly the announced size: pads a file that shrinks with zeros, truncates one that grows."""

    def __init__(self, fd: int, *, size: int) -> None:
        self._fd = fd
        self._left = size

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = os.read(self._fd, wanted) if wanted else b""
        if len(data) < wanted and not data:
            data = bytes(wanted)
        while len(data) < wanted:
            more = os.read(self._fd, wanted - len(data))
            data += more or bytes(wanted - len(data))
        self._left -= len(data)
        return data


class Exporter:
    """Writes entries one by one; `max_bytes` limits the total size of files."""

    def __init__(self, out: BinaryIO, *, max_bytes: int | None, selection: Selection = EVERYTHING) -> None:
        self._selection = selection
        self._gzip = Gzip(out)
        stream: Any = self._gzip
        self._tar: Any = tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self._left = max_bytes
        self._links: dict[int, str] = {}

    def run(self, top: int) -> None:
        """Write the archive, which is complete only on return. Raises LayerError and OSError."""
        for entry in walk(top, self._selection):
            self._add(entry)
            self._tar.members.clear()  # unused here, and unbounded
        self._tar.close()
        self._gzip.close()

    def _add(self, entry: Entry) -> None:
        mode = entry.info.st_mode
        if self._selection.is_above(entry.path):
            header = tarfile.TarInfo(entry.path)
            header.type = tarfile.DIRTYPE
            header.pax_headers = {ABOVE: "y"}
            self._tar.addfile(header)
            return
        if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
            fd = open_entry(entry)
            if fd is None:
                return
            try:
                self._add_open(entry, fd)
            finally:
                os.close(fd)
            return
        header = _header(entry.path, entry.info)
        if stat.S_ISLNK(mode):
            header.type = tarfile.SYMTYPE
            try:
                header.linkname = os.readlink(entry.name, dir_fd=entry.directory)
            except OSError:
                return
        elif stat.S_ISFIFO(mode):
            header.type = tarfile.FIFOTYPE
        elif stat.S_ISCHR(mode) and entry.info.st_rdev == 0:
            header.type = tarfile.CHRTYPE  # a whiteout
            header.devmajor = header.devminor = 0
        else:
            return  # sockets belong to their process; devices cannot be made in a sandbox
        self._tar.addfile(header)

    def _add_open(self, entry: Entry, fd: int) -> None:
        info = os.fstat(fd)
        header = _header(entry.path, info)
        header.pax_headers = _xattrs(fd, path=entry.path)
        if self._selection.is_part:
            # Programs that give root's rights would end a verifier's own separation of users.
            header.mode &= ~(stat.S_ISUID | stat.S_ISGID)
            header.pax_headers.pop(PAX_XATTR + CAPABILITY, None)
        if stat.S_ISDIR(info.st_mode):
            header.type = tarfile.DIRTYPE
            self._tar.addfile(header)
            return
        if not stat.S_ISREG(info.st_mode):
            return
        if info.st_nlink > 1:
            first = self._links.setdefault(info.st_ino, entry.path)
            if first != entry.path:
                header.type, header.linkname = tarfile.LNKTYPE, first
                self._tar.addfile(header)
                return
        if self._left is not None:
            self._left -= info.st_size
            if self._left < 0:
                raise LayerError("too_large", "files grew beyond the limit during the export: try again")
        header.size = info.st_size
        self._tar.addfile(header, _Exactly(fd, size=info.st_size))


def _header(path: str, info: os.stat_result) -> tarfile.TarInfo:
    header = tarfile.TarInfo(path)
    header.mode = stat.S_IMODE(info.st_mode)
    header.uid, header.gid = info.st_uid, info.st_gid
    header.mtime = info.st_mtime
    return header


def _xattrs(fd: int, *, path: str) -> dict[str, str]:
    found: dict[str, str] = {}
    names = _names(fd, path=path)
    # By name, as not every kernel lists it.
    for name in {*(name for name in names if is_kept(name)), OPAQUE}:
        try:
            value = os.getxattr(fd, name)
        except OSError:
            continue
        found[PAX_XATTR + _key(name)] = value.decode("utf-8", "surrogateescape")
    return found


def _key(name: str) -> str:
    """Escape an attribute's name: tarfile writes no key of other bytes than UTF-8, and `=` ends one."""
    escaped = name.replace("%", "%25").replace("=", "%3D")
    return "".join(f"%{ord(one) - 0xDC00:02X}" if "\udc80" <= one <= "\udcff" else one for one in escaped)


def _names(fd: int, *, path: str) -> set[str]:
    """Return the names of the attributes. Raises LayerError if one refers to a place outside of the layer."""
    try:
        names = set(os.listxattr(fd))
    except OSError:
        return set()
    if names.intersection(ELSEWHERE):
        raise LayerError(
            "unreadable", f"/{path} was renamed so that only this kernel can read it: copy it instead"
        )
    return names


def is_kept(name: str) -> bool:
    """Return whether an extended attribute belongs to the sandbox, not to the overlay."""
    return (name.startswith("user.") and not name.startswith("user.overlay.")) or name == CAPABILITY
