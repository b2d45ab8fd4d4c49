"""Cuts an archive into chunks where its sidecar ended a part of it, so that equal files become equal chunks.

A sidecar compresses each part on its own, and ends it as zlib ends what is flushed. The mark may also be in the files:
whatever is between two cuts, the same bytes are cut in the same places.
"""

from __future__ import annotations

from collections.abc import Iterator

MIN_CHUNK = 8 << 10  # bytes; code in a sandbox can write as many marks as it likes
MAX_CHUNK = 4 << 20
_SO_MANY = 8192  # chunks, after which the least size doubles: 64 GiB are at most 82,000
_MARK = b"\0\0\xff\xff"  # of a flush


class Chunker:
    """At most a chunk and what is fed at once are in memory."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0  # no mark begins before
        self._count = 0
        self._least = MIN_CHUNK

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the chunks that end in `data`."""
        self._buffer += data
        start = 0
        try:
            while (end := self._end(start)) is not None:
                yield bytes(memoryview(self._buffer)[start:end])
                start = self._searched = end
                self._count += 1
                if self._count % _SO_MANY == 0:
                    self._least = min(2 * self._least, MAX_CHUNK)
        finally:
            del self._buffer[:start]
            self._searched = max(0, self._searched - start)

    def rest(self) -> bytes:
        """Return the last chunk, which may be empty."""
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def _end(self, start: int) -> int | None:
        size = len(self._buffer) - start
        found = self._buffer.find(_MARK, max(self._searched, start + self._least - len(_MARK)))
        if 0 <= found <= start + MAX_CHUNK - len(_MARK):
            return found + len(_MARK)
        if size >= MAX_CHUNK:
            return start + MAX_CHUNK
        self._searched = max(self._searched, len(self._buffer) - len(_MARK) + 1)
        return None
