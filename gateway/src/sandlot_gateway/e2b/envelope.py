"""Connect's envelopes, without I/O: five bytes (flags, length in big endian) before each JSON message of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from .failures import EnvdFailure, invalid

HEADER = 5
MAX_MESSAGE = 16 << 20  # bytes of one message of a client
_COMPRESSED = 0b01
END = 0b10  # the last envelope of a stream


def envelope(document: Any, *, flags: int = 0) -> bytes:
    """Return a message in its envelope."""
    payload = msgspec.json.encode(document)
    return b"%c%b%b" % (flags, len(payload).to_bytes(4, "big"), payload)


class EnvelopeReader:
    """A parser that is fed bytes and yields the payload of each complete envelope; an incomplete one stays buffered."""

    def __init__(self, *, limit: int = MAX_MESSAGE) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield payloads. Raises EnvdFailure for an envelope that is too large, compressed, or no message."""
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= HEADER:
                flags = buffer[at]
                if flags & _COMPRESSED:
                    raise EnvdFailure("unimplemented", "compressed messages: send them uncompressed")
                if flags:
                    raise invalid("envelope", f"unknown flags {flags:#04x} in a request")
                length = int.from_bytes(buffer[at + 1 : at + HEADER], "big")
                if length > self._limit:
                    text = f"a message of {length} bytes exceeds the limit of {self._limit}"
                    raise EnvdFailure("resource_exhausted", text)
                end = at + HEADER + length
                if len(buffer) < end:
                    break
                payload = bytes(buffer[at + HEADER : end])
                at = end
                yield payload
        finally:
            del buffer[:at]

    def finish(self) -> None:
        """Check that no envelope is incomplete at the end of the stream. Raises EnvdFailure."""
        if self._buffer:
            raise invalid("envelope", f"the stream ended {len(self._buffer)} bytes into a message")


def only(data: bytes) -> bytes:
    """Return the payload of a stream that is to have exactly one message. Raises EnvdFailure."""
    reader = EnvelopeReader()
    found = list(reader.feed(data))
    reader.finish()
    if len(found) != 1:
        raise invalid("envelope", f"the request needs one message, not {len(found)}")
    return found[0]
