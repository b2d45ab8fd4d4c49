"""In which runs an archive's chunks are read from packs, so that a restore needs few requests whatever the archive has.

A reader keeps the chunks that it used last. Writer and reader follow the same rules, so the writer knows what each costs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic, TypeVar

from sandlot_gateway.checkpoints.manifest import Chunk

T = TypeVar("T")

_RECENT = 4 << 20  # bytes of chunks that a reader keeps
_SKIPPED = 1 << 20  # bytes that are read for nothing rather than with another request
_FREE_RUNS = 64
_EVERY = 1 << 20  # bytes of an archive for each run beyond those


class Recent(Generic[T]):
    """What belongs to the chunks that were used last, `_RECENT` bytes of chunks at most."""

    def __init__(self) -> None:
        self._found: OrderedDict[bytes, tuple[int, T]] = OrderedDict()
        self._size = 0

    def find(self, digest: bytes) -> T | None:
        found = self._found.get(digest)
        if found is None:
            return None
        self._found.move_to_end(digest)
        return found[1]

    def add(self, chunk: Chunk, value: T) -> None:
        """Keep what `find` has not found."""
        self._found[chunk.digest] = chunk.size, value
        self._size += chunk.size
        while self._size > _RECENT:
            self._size -= self._found.popitem(last=False)[1][0]


class Planned:
    """The runs of an archive that is being written. One that would have too many stores chunks again."""

    def __init__(self) -> None:
        self._recent: Recent[Chunk] = Recent()
        self._ends: dict[str, int] = {}  # of the last run in each pack
        self._runs = 0
        self._size = 0

    def may_use(self, chunk: Chunk) -> bool:
        """Return whether the archive may have a chunk where it lies."""
        if self._recent.find(chunk.digest) is not None or _goes_on(self._ends.get(chunk.pack), chunk):
            return True
        return self._runs < _FREE_RUNS + self._size // _EVERY

    def add(self, chunk: Chunk) -> None:
        """Let a chunk be the archive's next."""
        self._size += chunk.size
        if self._recent.find(chunk.digest) is not None:
            return
        self._recent.add(chunk, chunk)
        if not _goes_on(self._ends.get(chunk.pack), chunk):
            self._runs += 1
        self._ends[chunk.pack] = chunk.offset + chunk.size


def runs(chunks: Iterable[Chunk]) -> dict[str, list[tuple[int, int]]]:
    """Return where an archive's reader begins and ends to read each pack, one run after another."""
    recent: Recent[Chunk] = Recent()
    found: dict[str, list[tuple[int, int]]] = {}
    for chunk in chunks:
        if recent.find(chunk.digest) is not None:
            continue
        recent.add(chunk, chunk)
        there = found.setdefault(chunk.pack, [])
        end = chunk.offset + chunk.size
        if there and _goes_on(there[-1][1], chunk):
            there[-1] = there[-1][0], end
        else:
            there.append((chunk.offset, end))
    return found


def _goes_on(end: int | None, chunk: Chunk) -> bool:
    return end is not None and 0 <= chunk.offset - end <= _SKIPPED
