"""Frames datagrams on a connection, in both directions: two bytes of length (big endian), the payload."""

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

    @property
    def held(self) -> int:
        """The bytes that have not been read yet."""
        return len(self._buffer) - self._at

    def feed(self, data: bytes) -> None:
        self._compact()
        self._buffer += data

    def read(self) -> bytes | None:
        """Return the next datagram, None until its last byte is there. Raises ValueError if it is too long."""
        begin = self._at + HEADER
        if len(self._buffer) < begin:
            self._compact()
            return None
        length = int.from_bytes(self._buffer[self._at : begin], "big")
        if length > MAX_DATAGRAM:
            raise ValueError(f"a datagram has {length} bytes: the limit is {MAX_DATAGRAM}")
        if len(self._buffer) < begin + length:
            self._compact()
            return None
        self._at = begin + length
        return bytes(self._buffer[begin : self._at])

    def skip(self) -> int:
        """Discard the datagrams that are there; return their number. Raises ValueError as `read` does."""
        skipped = 0
        while self.read() is not None:
            skipped += 1
        return skipped

    def _compact(self) -> None:
        # Else an idle connection would keep the memory of what it last carried.
        del self._buffer[: self._at]
        self._at = 0
