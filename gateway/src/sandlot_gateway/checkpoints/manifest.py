"""The manifest of an archive: of which chunks it consists, and in which pack each of them lies.

A pack has the chunks that its checkpoint was the first to have; those of earlier checkpoints lie in their packs. At the end
of a manifest are its length and its hash.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Iterator

import msgspec

from sandlot_gateway.checkpoints.errors import Damaged

MAX_PACKS = 32  # of others that one archive lies in
_MAGIC = b"SLpack01"
_END = struct.Struct(">8sQ32s")
_CHUNK = struct.Struct(">BQI32s")
_READ_AHEAD = 64 << 10  # bytes from the end, which mostly are the whole manifest
_NAME = re.compile(r"cp-[0-9a-f]{24}-[0-9a-f]{16}\Z")


class Chunk(msgspec.Struct, frozen=True):
    """A place in a pack, and the SHA-256 of what lies there."""

    pack: str
    offset: int
    size: int
    digest: bytes


class Manifest(msgspec.Struct, frozen=True):
    """`own`: the pack that was written for the archive; `packs`: all that it lies in.

    Chunks stay packed: an archive may have some hundred thousand.
    """

    own: str
    packs: list[str]
    packed: bytes

    def __iter__(self) -> Iterator[Chunk]:
        for pack, offset, size, digest in _CHUNK.iter_unpack(self.packed):
            yield Chunk(self.packs[pack], offset, size, digest)


class ManifestWriter:
    """Collects the chunks of an archive in their order."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._packs: dict[str, int] = {}  # their numbers
        self._chunks = bytearray()

    def add(self, chunk: Chunk) -> None:
        number = self._packs.setdefault(chunk.pack, len(self._packs))
        self._chunks += _CHUNK.pack(number, chunk.offset, chunk.size, chunk.digest)

    def used(self) -> set[str]:
        """Return the packs that chunks lie in."""
        return set(self._packs)

    def encoded(self) -> bytes:
        data = msgspec.msgpack.encode(Manifest(self._own, list(self._packs), bytes(self._chunks)))
        return data + _END.pack(_MAGIC, len(data), hashlib.sha256(data).digest())


def read_manifest(size: int, read: Callable[[int, int], bytes]) -> Manifest:
    """Return the manifest at the end of `size` bytes; `read` returns as many from an offset on. Raises Damaged."""
    ahead = min(size, _READ_AHEAD)
    tail = read(size - ahead, ahead)
    if len(tail) < max(ahead, _END.size):
        raise Damaged("its manifest is cut off")
    magic, length, digest = _END.unpack(tail[-_END.size :])
    begin = size - _END.size - length
    if magic != _MAGIC or begin < 0:
        raise Damaged("its manifest is cut off")
    data = tail[-_END.size - length : -_END.size] if length + _END.size <= ahead else read(begin, length)
    if hashlib.sha256(data).digest() != digest:
        raise Damaged("its manifest is not what was written")
    found = msgspec.msgpack.decode(data, type=Manifest)
    if not all(map(_NAME.match, (found.own, *found.packs))):
        raise Damaged("its manifest names a pack that can be none")
    return found
