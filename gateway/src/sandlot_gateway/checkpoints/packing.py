"""Writes an archive as a pack: each chunk once, and none that an earlier pack of its tenant has."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable

from sandlot_gateway.checkpoints.chunks import Chunker
from sandlot_gateway.checkpoints.manifest import MAX_PACKS, Chunk, Manifest, ManifestWriter
from sandlot_gateway.checkpoints.runs import Planned

_MOST_KNOWN = 200_000  # chunks, of some 300 bytes of memory each; what is not known is stored again
_WORTH = 4  # an earlier checkpoint's use of a pack is worth holding it if it is one part of so many


class Known:
    """Where chunks lie that need not be stored again. Its packs must stay: see `Packs` of each store."""

    def __init__(self) -> None:
        self._chunks: dict[bytes, Chunk] = {}

    def add(self, chunk: Chunk) -> None:
        if len(self._chunks) < _MOST_KNOWN:
            self._chunks.setdefault(chunk.digest, chunk)

    def replace(self, chunk: Chunk) -> None:
        """Add a chunk that lies in another place now."""
        if chunk.digest in self._chunks:
            self._chunks[chunk.digest] = chunk
        else:
            self.add(chunk)

    def find(self, digest: bytes) -> Chunk | None:
        return self._chunks.get(digest)


class Holding:
    """Takes hold of the packs of earlier checkpoints, one after another, and learns their chunks.

    `hold` is called with a pack's name and returns whether it stays from now on.
    """

    def __init__(self) -> None:
        self.known = Known()
        self._held: set[str] = set()

    def take(self, manifest: Manifest, *, sizes: Callable[[str], int], hold: Callable[[str], bool]) -> None:
        """Learn an archive's chunks in the packs that can be held; `sizes` returns the bytes of one.

        One of which the archive uses little is left alone: it would stay, and count for its tenant, for the sake of that.
        """
        for pack in worthwhile(manifest, sizes=sizes):
            if pack not in self._held and len(self._held) < MAX_PACKS and hold(pack):
                self._held.add(pack)
        for chunk in manifest:
            if chunk.pack in self._held:
                self.known.add(chunk)


def worthwhile(manifest: Manifest, *, sizes: Callable[[str], int]) -> list[str]:
    """Return the packs that an archive uses enough of, its own first, then those that it uses most."""
    used: Counter[str] = Counter()
    for chunk in manifest:
        used[chunk.pack] += chunk.size
    own = [manifest.own] if used[manifest.own] else []
    others = [pack for pack in manifest.packs if pack != manifest.own and used[pack] * _WORTH >= sizes(pack)]
    return [*own, *sorted(others, key=lambda pack: -used[pack])]


class Packing:
    """`store` writes bytes at the end of the pack; `known` is called once, before the first chunk."""

    def __init__(self, own: str, *, store: Callable[[bytes], None], known: Callable[[], Known]) -> None:
        self._own = own
        self._store = store
        self._look = known
        self._known: Known | None = None
        self._chunker = Chunker()
        self._manifest = ManifestWriter(own)
        self._planned = Planned()
        self._offset = 0

    def write(self, data: bytes) -> int:
        """Take the next bytes of the archive; return how many of all so far need not be stored, as is now known."""
        return sum(map(self._add, self._chunker.feed(data)))

    def flush(self) -> int:
        """Take the end of the archive; return as `write` does."""
        rest = self._chunker.rest()
        return self._add(rest) if rest else 0

    def manifest(self) -> bytes:
        """Return the encoded manifest, after `flush`."""
        return self._manifest.encoded()

    def used(self) -> set[str]:
        """Return the packs that the archive lies in."""
        return self._manifest.used()

    def _add(self, data: bytes) -> int:
        if self._known is None:
            self._known = self._look()
        digest = hashlib.sha256(data).digest()
        found = self._known.find(digest)
        if found is not None and found.size == len(data) and self._planned.may_use(found):
            self._planned.add(found)
            self._manifest.add(found)
            return len(data)
        chunk = Chunk(self._own, self._offset, len(data), digest)
        self._store(data)
        self._offset += len(data)
        self._planned.add(chunk)
        self._manifest.add(chunk)
        self._known.replace(chunk)
        return 0
