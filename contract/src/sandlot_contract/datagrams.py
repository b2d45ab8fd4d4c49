"""Frames datagrams on a connection, in both directions: two bytes of length (big endian), the payload."""

UPGRADE = "sandlot-udp"
MAX_DATAGRAM = 65_507  # bytes; the most that UDP over IPv4 carries
HEADER = 2  # bytes before the payload


def frame(payload: bytes | memoryview) -> bytes:
    return len(payload).to_bytes(HEADER, "big") + payload


class DatagramReader:
    """Parses frames from bytes as they arrive. Read until None before feeding more, so that the buffer is bounded."""

    __slots__ = ("_at", "_buffer")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0

    def feed(self, data: bytes) -> None:
        del self._buffer[: self._at]
        self._at = 0
        self._buffer += data

    def read(self) -> bytes | None:
        """Return the next datagram, None until its last byte is there. Raises ValueError if it is too long."""
        begin = self._at + HEADER
        if len(self._buffer) < begin:
            return None
        length = int.from_bytes(self._buffer[self._at : begin], "big")
        if length > MAX_DATAGRAM:
            raise ValueError(f"a datagram has {length} bytes: the limit is {MAX_DATAGRAM}")
        if len(self._buffer) < begin + length:
            return None
        self._at = begin + length
        return bytes(self._buffer[begin : self._at])
