"""Parses the sidecar's frames from a byte stream, without I/O."""

from __future__ import annotations

from collections.abc import Iterator

from sandlot_contract.frames import HEADER

from .errors import WireError

MAX_FRAME = 16 << 20  # bytes; the contract's output frames are far smaller


class FrameReader:
    """A parser that is fed bytes and yields complete frames; an incomplete one stays buffered."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield (kind, payload) of each complete frame. Raises WireError for one that is too large."""
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= HEADER:
                length = int.from_bytes(buffer[at + 1 : at + HEADER], "big")
                if length > MAX_FRAME:
                    raise WireError(f"a frame of {length} bytes exceeds the limit of {MAX_FRAME}")
                end = at + HEADER + length
                if len(buffer) < end:
                    break
                kind, payload = buffer[at], bytes(buffer[at + HEADER : end])
                at = end
                yield kind, payload
        finally:
            del buffer[:at]

    @property
    def inside(self) -> bool:
        """Whether an incomplete frame is buffered."""
        return bool(self._buffer)
