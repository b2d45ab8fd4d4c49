"""Compresses an archive in parts that begin and end with files: equal files become equal bytes, whatever is before them.

So a store keeps what two archives have in common once. It finds the parts by the mark that zlib ends each of them with.
"""

from __future__ import annotations

import hashlib
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, Protocol

    class Source(Protocol):
        def read(self, size: int = -1) -> bytes: ...


LARGE = 256 << 10  # bytes from which on a file has parts of its own
_LARGE_PART = 1 << 20
_PART = 64 << 10  # of small files, on average; a compressor's memory is half as large
_LEAST = 16 << 10
_HEADER = 1024  # bytes of an entry without its contents
_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\4\3"  # of gzip: no name, no time, fast, Unix


class Gzip:
    """A writable file in gzip's format, which compresses or only stores."""

    def __init__(self, out: BinaryIO, *, compresses: bool) -> None:
        self._out = out
        self._level = 1 if compresses else 0
        self._packer = self._fresh()
        self._crc = 0
        self._size = 0
        self.limit = LARGE  # bytes of a part, whatever is in it
        self.pending = 0  # bytes of this part
        self._head = _HEAD  # until it is written

    def tell(self) -> int:
        return self._size

    def write(self, data: bytes) -> int:
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)
        left = memoryview(data)
        while left:
            piece = left[: self.limit - self.pending]
            self._send(self._packer.compress(piece))
            self.pending += len(piece)
            if self.pending >= self.limit:
                self.cut()
            left = left[len(piece) :]
        return len(data)

    def cut(self) -> None:
        """End a part, and begin the next, which depends on none before."""
        if self.pending:
            self._send(self._packer.flush(zlib.Z_FULL_FLUSH))
            self._packer = self._fresh()
            self.pending = 0

    def close(self) -> None:
        self._send(self._packer.flush())
        self._send(self._crc.to_bytes(4, "little") + (self._size & 0xFFFFFFFF).to_bytes(4, "little"))
        self._out.flush()

    def _send(self, packed: bytes) -> None:
        if packed:
            self._out.write(self._head + packed)
            self._head = b""

    def _fresh(self) -> zlib._Compress:
        return zlib.compressobj(self._level, zlib.DEFLATED, -zlib.MAX_WBITS)


class Parts:
    """Decides where parts end, by names and lengths alone: a change moves no boundary far from it."""

    def __init__(self, out: Gzip) -> None:
        self._out = out
        self._is_large = False

    def begin(self, path: str, *, size: int) -> None:
        """Begin an entry with so many bytes of contents."""
        if self._is_large:
            self._out.cut()
            self._out.limit = LARGE
            self._is_large = False
        elif self._out.pending >= _LEAST and _is_first(path, _HEADER + size):
            self._out.cut()

    def contents(self, source: Source, *, size: int) -> Source:
        """Return what the contents of an entry are read from, after its header was written."""
        return _Large(self, source) if size >= LARGE else source

    def begin_large(self) -> None:
        """Let contents begin a part, whatever their name, owner and times are."""
        self._out.cut()
        self._out.limit = _LARGE_PART
        self._is_large = True

    def end(self) -> None:
        """End the last part: what follows depends on all of the archive."""
        self._out.cut()


class _Large:
    def __init__(self, parts: Parts, source: Source) -> None:
        self._parts = parts
        self._source = source
        self._is_begun = False

    def read(self, size: int = -1) -> bytes:
        if not self._is_begun:
            self._is_begun = True
            self._parts.begin_large()
        return self._source.read(size)


def _is_first(path: str, size: int) -> bool:
    """Return whether an entry of so many bytes begins a part: on average one for each part's bytes does."""
    name = hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=4).digest()
    return int.from_bytes(name, "big") * _PART < size << 32
