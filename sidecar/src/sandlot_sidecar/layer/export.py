"""Writes the upper layer of an overlay as a compressed tar, whiteouts and opaque directories as the kernel has them."""

from __future__ import annotations

import os
import stat
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from .errors import LayerError

MAX_DEPTH = 1000  # one open directory each
OPAQUE = "trusted.overlay.opaque"
# What these say is about other files of this very layer and its image's inodes.
ELSEWHERE = ("trusted.overlay.redirect", "trusted.overlay.metacopy")
PAX_XATTR = "SCHILY.xattr."
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Entry:
    """One name in the layer: the directory that holds it, its path from the layer's top, what it is."""

    __slots__ = ("directory", "info", "name", "path")

    def __init__(self, *, directory: int, name: str, path: str, info: os.stat_result) -> None:
        self.directory = directory
        self.name = name
        self.path = path
        self.info = info


def walk(top: int) -> Iterator[Entry]:
    """Every entry, a directory before what is in it; what goes away meanwhile is left out. Raises LayerError."""
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
            yield Entry(directory=directory, name=name, path=path, info=info)
            if not stat.S_ISDIR(info.st_mode):
                continue
            if len(levels) >= MAX_DEPTH:
                raise LayerError("too_large", f"directories are nested more than {MAX_DEPTH} deep")
            try:
                below = os.open(name, _DIRECTORY, dir_fd=directory)
            except OSError:
                continue  # it was replaced a moment ago
            levels.append((below, sorted(os.listdir(below), reverse=True), f"{path}/"))
    finally:
        for directory, _, _ in levels:
            os.close(directory)


def measure(top: int) -> tuple[int, int]:
    """How many entries there are, and bytes of all regular files as their lengths say. Raises LayerError."""
    count = size = 0
    for entry in walk(top):
        count += 1
        if stat.S_ISREG(entry.info.st_mode):
            size += entry.info.st_size
    return count, size


class Gzip:
    """A file to write to, which compresses."""

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
    """Reads as many bytes as were announced: a file that shrinks meanwhile ends in zeros, one that grows is cut."""

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
    """Writes entries one after the other; `max_bytes` bounds all files' lengths together."""

    def __init__(self, out: BinaryIO, *, max_bytes: int | None) -> None:
        self._gzip = Gzip(out)
        stream: Any = self._gzip
        self._tar: Any = tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self._left = max_bytes
        self._links: dict[int, str] = {}

    def run(self, top: int) -> None:
        """Raises LayerError and OSError; the archive is whole only when it does not."""
        for entry in walk(top):
            self._add(entry)
            self._tar.members.clear()  # the list is of no use here, and has no bound
        self._tar.close()
        self._gzip.close()

    def _add(self, entry: Entry) -> None:
        mode = entry.info.st_mode
        if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
            try:
                fd = os.open(entry.name, _DIRECTORY if stat.S_ISDIR(mode) else _FILE, dir_fd=entry.directory)
            except OSError:
                return  # it went away, or was replaced, a moment ago
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
            return  # a socket is of its process; devices cannot be made in a sandbox
        self._tar.addfile(header)

    def _add_open(self, entry: Entry, fd: int) -> None:
        info = os.fstat(fd)
        header = _header(entry.path, info)
        header.pax_headers = _xattrs(fd, path=entry.path)
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
                raise LayerError("too_large", "files have grown over the limit of a checkpoint meanwhile")
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
    try:
        names = set(os.listxattr(fd))
    except OSError:
        names = set()
    if names.intersection(ELSEWHERE):
        raise LayerError(
            "conflict", f"/{path} was renamed in a way that only this machine's kernel can follow"
        )
    # By name: not every kernel lists it.
    for name in {*(name for name in names if is_kept(name)), OPAQUE}:
        try:
            value = os.getxattr(fd, name)
        except OSError:
            continue
        key = name.replace("%", "%25").replace("=", "%3D")
        found[PAX_XATTR + key] = value.decode("utf-8", "surrogateescape")
    return found


def is_kept(name: str) -> bool:
    """Whether an extended attribute is the sandbox's own, not the overlay's book-keeping."""
    return (
        name.startswith("user.") and not name.startswith("user.overlay.")
    ) or name == "security.capability"
