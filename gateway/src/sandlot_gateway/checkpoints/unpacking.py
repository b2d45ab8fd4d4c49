"""Reads an archive from the packs that its chunks lie in; a chunk that is not what was stored ends it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

from sandlot_gateway.checkpoints.errors import Damaged
from sandlot_gateway.checkpoints.manifest import Manifest
from sandlot_gateway.checkpoints.runs import Recent


class OpenPack(Protocol):
    def read_at(self, offset: int, size: int) -> bytes:
        """Return so many bytes, or fewer where the pack ends."""
        ...

    def close(self) -> None: ...


class Unpacking:
    """`opened` opens a pack by its name; each is read in the runs of `runs`."""

    def __init__(self, manifest: Manifest, *, opened: Callable[[str], OpenPack]) -> None:
        self._names = manifest.packs
        self._chunks = enumerate(manifest)
        self._open = opened
        self._packs: dict[str, OpenPack] = {}
        self._recent: Recent[bytes] = Recent()
        self._left = memoryview(b"")

    def open_all(self) -> None:
        """Open every pack now, so that the archive can be read after its delete. Raises what `opened` raises."""
        for pack in self._names:
            self._pack(pack)

    def read(self, size: int) -> bytes:
        """Return the next bytes, fewer than `size` only at the end. Raises Damaged."""
        pieces: list[memoryview] = []
        while size and (self._left or self._next()):
            pieces.append(self._left[:size])
            self._left = self._left[size:]
            size -= len(pieces[-1])
        return b"".join(pieces)

    def _next(self) -> bool:
        """Read the next chunk; return False if there is none."""
        number, chunk = next(self._chunks, (0, None))
        if chunk is None:
            return False
        data = self._recent.find(chunk.digest)
        if data is None:
            data = self._pack(chunk.pack).read_at(chunk.offset, chunk.size)
            if hashlib.sha256(data).digest() != chunk.digest:
                place = f"byte {chunk.offset} of {chunk.pack}"
                raise Damaged(
                    f"chunk {number} of its archive, {chunk.size} bytes from {place} on, has changed"
                )
            self._recent.add(chunk, data)
        self._left = memoryview(data)
        return True

    def close(self) -> None:
        packs, self._packs = self._packs, {}
        for pack in packs.values():
            pack.close()

    def _pack(self, name: str) -> OpenPack:
        found = self._packs.get(name)
        if found is None:
            found = self._packs[name] = self._open(name)
        return found
