"""Whom a connection asks for, read in its first bytes: the server name of TLS (RFC 6066), the Host of HTTP/1 (RFC 9112)."""

from __future__ import annotations

MOST = (
    32 << 10
)  # bytes that may come before the name is known; a ClientHello has 2 KiB at most, heads 8 to 16

_RECORD, _CLIENT_HELLO = b"\x16\3", b"\1"
_SERVER_NAME, _HOST_NAME = 0, 0
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


class Incomplete(Exception):
    """More bytes are needed."""


class Nameless(Exception):
    """It says no name, or not one that can be relied on."""


def clean(name: str) -> str:
    """A host's name (or IPv4 address) as it is compared. Raises Nameless for what is none."""
    name = name.lower()
    if name.endswith("."):
        name = name[:-1]
    if len(name) > 253 or not all(
        0 < len(label) < 64 and _LETTERS.issuperset(label) for label in name.split(".")
    ):
        raise Nameless("that is no name of a host")
    return name


def of_tls(data: bytes) -> str:
    """Raises Incomplete and Nameless."""
    hello = _Bytes(_handshake(data))
    hello.take(2 + 32)  # version, random
    hello.take(hello.number(1))  # session
    hello.take(hello.number(2))  # ciphers
    hello.take(hello.number(1))  # compression
    if not hello.left:
        raise Nameless("TLS without a server name")
    extensions = _Bytes(hello.take(hello.number(2)))
    while extensions.left:
        kind, body = extensions.number(2), _Bytes(extensions.take(extensions.number(2)))
        if kind != _SERVER_NAME:
            continue
        names = _Bytes(body.take(body.number(2)))
        if names.number(1) != _HOST_NAME:
            break
        return _text(names.take(names.number(2)))
    raise Nameless("TLS without a server name")


def _handshake(data: bytes) -> bytes:
    """The body of the ClientHello, which may come in several records."""
    message, at = b"", 0
    while True:
        head = data[at : at + 5]
        if not _RECORD.startswith(head[:2]) or (len(head) == 5 and head[3:] == b"\0\0"):
            raise Nameless("no TLS")
        if len(head) < 5:
            raise Incomplete
        end = at + 5 + int.from_bytes(head[3:], "big")
        message += data[at + 5 : end]
        size = int.from_bytes(message[1:4], "big")
        if message[:1] not in (b"", _CLIENT_HELLO) or (len(message) >= 4 and size > MOST):
            raise Nameless("no TLS")
        if len(message) >= 4 + size:
            return message[4 : 4 + size]
        if len(data) < end:
            raise Incomplete
        at = end


def of_http(data: bytes) -> str:
    """Of the first request. Raises Incomplete and Nameless."""
    head, end, _ = data.partition(b"\r\n\r\n")
    if not end:
        raise Incomplete
    if head.count(b"\n") != head.count(b"\r\n") or head.count(b"\r") != head.count(b"\r\n"):
        raise Nameless("a head whose lines servers tell apart in several ways")
    first, *lines = head.split(b"\r\n")
    parts = first.split(b" ")
    if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
        raise Nameless("no HTTP/1")
    method, target, _ = parts
    names = {_authority(value) for value in _hosts(lines)}
    # A server goes by the target where it says a host.
    if method == b"CONNECT":
        names.add(_authority(target))
    elif not target.startswith(b"/") and b"://" in target:
        names.add(_authority(target.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0]))
    if len(names) != 1:
        raise Nameless("HTTP that says several hosts" if names else "HTTP without a Host")
    return names.pop()


def _hosts(lines: list[bytes]) -> list[bytes]:
    found = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            raise Nameless("a header that is none")
        if name.lower() == b"host":
            found.append(value.strip())
    return found


def _authority(value: bytes) -> str:
    """Without its port."""
    host, colon, port = value.partition(b":")
    if colon and not port.isdigit():
        raise Nameless("that is no name of a host")
    return _text(host)


def _text(name: bytes) -> str:
    try:
        return clean(name.decode("ascii"))
    except UnicodeDecodeError as error:
        raise Nameless("that is no name of a host") from error


class _Bytes:
    """Reads on and on; what says more than is there is no TLS."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise Nameless("no TLS")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")
