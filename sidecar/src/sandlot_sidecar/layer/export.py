"""Writes an overlay's upper layer, or parts of it, as a compressed tar; whiteouts stay as the kernel has them."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from .attributes import CAPABILITY, PAX_XATTR, attributes, key
from .errors import LayerError
from .parts import Gzip, Parts
from .selection import ABOVE, EVERYTHING, Selection
from .walk import Entry, Walk

MTIME = "mtime"  # the PAX record
_PIECE = 64 << 10


def record_bytes(pax_headers: Mapping[str, str]) -> int:
    """Return how many bytes the attributes in the PAX records of an entry occupy."""
    found = (key + value for key, value in pax_headers.items() if key.startswith(PAX_XATTR))
    return sum(len(one.encode("utf-8", "surrogateescape")) for one in found)


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

    def __init__(
        self,
        out: BinaryIO,
        *,
        max_bytes: int | None,
        selection: Selection = EVERYTHING,
        compresses: bool = True,
    ) -> None:
        self._selection = selection
        self._gzip = Gzip(out, compresses=compresses)
        self._parts = Parts(self._gzip)
        stream: Any = self._gzip
        self._tar: Any = tarfile.TarFile(
            fileobj=stream, mode="w", format=tarfile.PAX_FORMAT, copybufsize=_PIECE
        )
        self._left = max_bytes
        self._links: dict[tuple[int, int], str] = {}  # by layer and file
        self.skipped = 0  # entries that code replaced again and again

    def run(self, tops: Sequence[int]) -> None:
        """Write the archive, which is complete only on return. Raises LayerError and OSError."""
        walk = Walk(tops, self._selection)
        for entry in walk:
            self._add(entry)
            self._tar.members.clear()  # unused here, and unbounded
        self.skipped = walk.skipped
        self._parts.end()
        self._tar.close()
        self._gzip.close()

    def _add(self, entry: Entry) -> None:
        self._parts.begin(entry.path, size=entry.info.st_size if entry.fd >= 0 else 0)
        mode = entry.info.st_mode
        if self._selection.is_above(entry.path):
            header = tarfile.TarInfo(entry.path)
            header.type = tarfile.DIRTYPE
            header.pax_headers = {ABOVE: "y"}
            self._tar.addfile(header)
            return
        if entry.fd >= 0:
            self._add_open(entry)
            return
        header = _header(entry.path, entry.info)
        if stat.S_ISLNK(mode):
            header.type = tarfile.SYMTYPE
            header.linkname = entry.target
        elif stat.S_ISFIFO(mode):
            header.type = tarfile.FIFOTYPE
        elif stat.S_ISCHR(mode) and entry.info.st_rdev == 0:
            header.type = tarfile.CHRTYPE  # a whiteout
            header.devmajor = header.devminor = 0
        else:
            return  # sockets belong to their process; devices cannot be made in a sandbox
        self._tar.addfile(header)

    def _add_open(self, entry: Entry) -> None:
        info = os.fstat(entry.fd)
        header = _header(entry.path, info)
        records = {**header.pax_headers, **_xattrs(entry)}
        header.pax_headers = records
        if self._selection.is_part:
            # Programs that give root's rights would end a verifier's own separation of users.
            header.mode &= ~(stat.S_ISUID | stat.S_ISGID)
            records.pop(PAX_XATTR + CAPABILITY, None)
        if stat.S_ISDIR(info.st_mode):
            self._count(record_bytes(header.pax_headers))
            header.type = tarfile.DIRTYPE
            self._tar.addfile(header)
            return
        if info.st_nlink > 1:
            first = self._links.setdefault((info.st_dev, info.st_ino), entry.path)
            if first != entry.path:
                header.type, header.linkname = tarfile.LNKTYPE, first
                self._tar.addfile(header)
                return
        self._count(info.st_size + record_bytes(header.pax_headers))
        header.size = info.st_size
        self._tar.addfile(
            header, self._parts.contents(_Exactly(entry.fd, size=info.st_size), size=info.st_size)
        )

    def _count(self, size: int) -> None:
        if self._left is not None:
            self._left -= size
            if self._left < 0:
                raise LayerError("too_large", "files grew beyond the limit during the export: try again")


def _header(path: str, info: os.stat_result) -> tarfile.TarInfo:
    header = tarfile.TarInfo(path)
    header.mode = stat.S_IMODE(info.st_mode)
    header.uid, header.gid = info.st_uid, info.st_gid
    # Exactly: else a restored file has another time, and an archive of it another header.
    seconds, rest = divmod(info.st_mtime_ns, 1_000_000_000)
    header.mtime = seconds
    if seconds < 0:
        header.mtime = info.st_mtime
    elif rest:
        header.pax_headers = {MTIME: f"{seconds}.{rest:09d}"}
    return header


def _xattrs(entry: Entry) -> dict[str, str]:
    kept = attributes(entry)
    return {PAX_XATTR + key(name): value.decode("utf-8", "surrogateescape") for name, value in kept.items()}
