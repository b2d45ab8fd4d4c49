"""Reads the host from a connection's first bytes: TLS server name (RFC 6066) or HTTP/1 Host (RFC 9112)."""

from __future__ import annotations

MOST = (
    32 << 10
)  # bytes before the name must be known; a ClientHello has at most 2 KiB, HTTP heads 8 to 16 KiB
# The first bytes of all connections are parsed in the event loop's thread: without these limits, a hundred
# connections with as many tiny parts as MOST allows would block the sidecar for seconds.
RECORDS = 16  # of a ClientHello: one, or a few where a client splits it on purpose
EXTENSIONS = 256  # before the server name; clients send 20
LINES = 256  # headers of a request; servers accept 100

_RECORD, _CLIENT_HELLO = b"\x16\3", b"\1"
_SERVER_NAME, _HOST_NAME = 0, 0
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


class Incomplete(Exception):
    """More bytes are needed."""


class NoHostName(Exception):
    """The connection names no host, or none that can be relied on."""


def clean(name: str) -> str:
    """Normalize a host name (or IPv4 address) for comparison. Raises NoHostName."""
    name = name.lower()
    if name.endswith("."):
        name = name[:-1]
    if len(name) > 253 or not all(
        0 < len(label) < 64 and _LETTERS.issuperset(label) for label in name.split(".")
    ):
        raise NoHostName("invalid host name")
    return name


class Hello:
    """Parses the TLS server name incrementally; each byte is looked at once, however the input is split."""

    def __init__(self, *, records: int = RECORDS) -> None:
        self.said = bytearray()
        self._at = 0  # parsed up to here
        self._left = 0  # bytes left of the current record
        self._records = records  # how many more may begin
        self._message = bytearray()  # the handshake message, without record headers

    def feed(self, more: bytes) -> str:
        """Return the name after these bytes. Raises Incomplete and NoHostName."""
        said, message = self.said, self._message
        said += more
        while True:
            if not self._left:
                self._begin_record()
            end = min(self._at + self._left, len(said))
            message += said[self._at : end]
            self._left -= end - self._at
            self._at = end
            size = int.from_bytes(message[1:4], "big")
            if message[:1] not in (b"", _CLIENT_HELLO) or (len(message) >= 4 and size > MOST):
                raise NoHostName("not TLS")
            if len(message) >= 4 + size:
                return _server_name(bytes(message[4 : 4 + size]))
            if self._left:
                raise Incomplete

    def _begin_record(self) -> None:
        head = self.said[self._at : self._at + 5]
        if not _RECORD.startswith(head[:2]) or (len(head) == 5 and head[3:] == b"\0\0"):
            raise NoHostName("not TLS")
        if len(head) < 5:
            raise Incomplete
        if not self._records:
            raise NoHostName("a TLS ClientHello split into too many records")
        self._records -= 1
        self._at += 5
        self._left = int.from_bytes(head[3:], "big")


def _server_name(message: bytes) -> str:
    """Return the server name from the body of a ClientHello."""
    hello = _Bytes(message)
    hello.take(2 + 32)  # version, random
    hello.take(hello.number(1))  # session
    hello.take(hello.number(2))  # ciphers
    hello.take(hello.number(1))  # compression
    if not hello.left:
        raise NoHostName("TLS without a server name")
    extensions = _Bytes(hello.take(hello.number(2)))
    for _ in range(EXTENSIONS):
        if not extensions.left:
            break
        kind, body = extensions.number(2), _Bytes(extensions.take(extensions.number(2)))
        if kind != _SERVER_NAME:
            continue
        names = _Bytes(body.take(body.number(2)))
        if names.number(1) != _HOST_NAME:
            break
        return _text(names.take(names.number(2)))
    raise NoHostName("TLS without a server name")


class Head:
    """Parses the host of an HTTP request incrementally; each byte is searched once for the end of the head."""

    def __init__(self) -> None:
        self.said = bytearray()

    def feed(self, more: bytes) -> str:
        """Return the name after these bytes. Raises Incomplete and NoHostName."""
        before = max(0, len(self.said) - 3)  # the end may be split between two feeds
        self.said += more
        end = self.said.find(b"\r\n\r\n", before)
        if end < 0:
            raise Incomplete
        return _host(bytes(self.said[:end]))


def _host(head: bytes) -> str:
    if head.count(b"\n") != head.count(b"\r\n") or head.count(b"\r") != head.count(b"\r\n"):
        raise NoHostName("an HTTP head with ambiguous line ends")
    first, *lines = head.split(b"\r\n")
    if len(lines) > LINES:
        raise NoHostName(f"HTTP with more than {LINES} headers")
    parts = first.split(b" ")
    if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
        raise NoHostName("not HTTP/1")
    method, target, _ = parts
    names = {_authority(value) for value in _hosts(lines)}
    # A server prefers a host in the request target.
    if method == b"CONNECT":
        names.add(_authority(target))
    elif not target.startswith(b"/") and b"://" in target:
        names.add(_authority(target.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0]))
    if len(names) != 1:
        raise NoHostName("HTTP with several hosts" if names else "HTTP without a Host")
    return names.pop()


def _hosts(lines: list[bytes]) -> list[bytes]:
    found = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            raise NoHostName("an invalid HTTP header")
        if name.lower() == b"host":
            found.append(value.strip())
    return found


def _authority(value: bytes) -> str:
    """Return a host without its port. Raises NoHostName."""
    host, colon, port = value.partition(b":")
    if colon and not port.isdigit():
        raise NoHostName("invalid host name")
    return _text(host)


def _text(name: bytes) -> str:
    try:
        return clean(name.decode("ascii"))
    except UnicodeDecodeError as error:
        raise NoHostName("invalid host name") from error


class _Bytes:
    """Reads a TLS structure; a length beyond its end raises NoHostName."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise NoHostName("not TLS")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")
