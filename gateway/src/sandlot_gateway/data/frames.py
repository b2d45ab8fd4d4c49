"""Parses the sidecar's frames from a byte stream, and their documents, without I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from sandlot_contract.frames import HEADER

from sandlot_gateway.core.bad_json import NOT_JSON

from .errors import WireError

MAX_FRAME = 16 << 20  # bytes; the contract's output frames are far smaller


def document(payload: bytes) -> dict[str, Any]:
    """Parse a frame's JSON object. Raises WireError."""
    try:
        found = msgspec.json.decode(payload)
    except NOT_JSON as error:
        raise WireError(f"a frame is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise WireError("a frame is not a JSON object")
    return found


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
