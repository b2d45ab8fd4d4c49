"""Reads the sidecar's frames out of a byte stream, without I/O."""

from __future__ import annotations

from collections.abc import Iterator

from sandlot_contract.frames import HEADER

from .errors import WireError

MAX_FRAME = 16 << 20  # bytes; the contract's output frames are far smaller


class FrameReader:
    """Feed bytes, iterate over the whole frames among them; what is left over waits for the next bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """(kind, payload) of each frame that is whole now. Raises WireError for one that cannot be."""
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= HEADER:
                length = int.from_bytes(buffer[at + 1 : at + HEADER], "big")
                if length > MAX_FRAME:
                    raise WireError(f"a frame of {length} bytes")
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
        """Whether a frame has begun and is not whole."""
        return bool(self._buffer)
