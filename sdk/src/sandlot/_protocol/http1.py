"""An HTTP/1.1 client without I/O: writes a request's head and parses a response fed in any chunks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

MAX_HEAD = 64 * 1024
MAX_CHUNK_LINE = 4096


class ProtocolError(Exception):
    """The peer sent invalid or unsupported HTTP/1.1, or closed in the middle of a response."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port of a server."""

    secure: bool
    host: str
    port: int

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


def split_url(url: str) -> tuple[Origin, str]:
    """Return an http(s) URL's origin and its path without a trailing slash. Raises ValueError for other URLs."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"not an http:// or https:// URL: {url!r}")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"the URL may have only a scheme, a host, a port and a path: {url!r}")
    secure = parts.scheme == "https"
    port = parts.port if parts.port is not None else (443 if secure else 80)
    return Origin(secure=secure, host=parts.hostname, port=port), parts.path.rstrip("/")


def request_head(
    *, method: str, target: str, authority: str, headers: Mapping[str, str], length: int | None
) -> bytes:
    """Encode the request's head; `length` None means a chunked body."""
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = [f"{method} {target} HTTP/1.1", f"Host: {authority}", framing]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join(lines)
    if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
        raise ValueError("a header or the request target contains a line break")
    return (head + "\r\n\r\n").encode("latin-1")


def chunk(data: bytes) -> bytes:
    """Encode one chunk of a chunked body; an empty one ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


_HEAD, _LENGTH, _SIZE, _DATA, _DATA_END, _TRAILER, _CLOSE, _DONE = range(8)


class ResponseParser:
    """Parses one response, fed in any chunks; `status` is 0 until the head is complete."""

    __slots__ = ("_buffer", "_left", "_parts", "_state", "headers", "reusable", "started", "status")

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.started = False  # a byte has arrived: the server has received the request
        self.reusable = True  # the connection may carry another request once done
        self._state = _HEAD
        self._buffer = b""
        self._left = 0
        self._parts: list[bytes] = []

    @property
    def done(self) -> bool:
        return self._state == _DONE

    @property
    def has_data(self) -> bool:
        return bool(self._parts)

    def take(self) -> bytes:
        """Return the body bytes decoded since the last call."""
        parts = self._parts
        if not parts:
            return b""
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        return data

    def feed(self, data: bytes) -> None:
        """Parse the next bytes of the connection. Raises ProtocolError."""
        self.started = True
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        while self._state == _HEAD:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                if len(data) > MAX_HEAD:
                    raise ProtocolError("the response's head is too long")
                self._buffer = data
                return
            self._parse_head(data[:end])
            data = data[end + 4 :]
        if self._state == _LENGTH:
            self._feed_length(data)
        elif self._state == _CLOSE:
            if data:
                self._parts.append(data)
        elif self._state == _DONE:
            if data:
                self.reusable = False
        else:
            self._feed_chunked(data)

    def eof(self) -> None:
        """Handle the end of the connection. Raises ProtocolError if the response is incomplete."""
        self.reusable = False
        if self._state == _CLOSE:
            self._state = _DONE
        elif self._state != _DONE:
            raise ProtocolError(
                "the connection was closed " + ("in mid-answer" if self.started else "unanswered")
            )

    def _parse_head(self, head: bytes) -> None:
        lines = head.split(b"\r\n")
        first = lines[0]
        if not first.startswith(b"HTTP/1.") or not first[9:12].isdigit() or first[8:9] != b" ":
            raise ProtocolError("not an HTTP/1 response")
        status = int(first[9:12])
        if status == 101 or status < 100:
            raise ProtocolError(f"unexpected status {status}")
        if status < 200:
            return  # an interim response: the real one follows
        headers = self.headers
        for line in lines[1:]:
            name, colon, value = line.partition(b":")
            if not colon or not name or name[:1] in b" \t":
                raise ProtocolError("malformed header line")
            key = name.decode("latin-1").lower()
            text = value.strip().decode("latin-1")
            if key in headers and key == "content-length" and headers[key] != text:
                raise ProtocolError("two different content lengths")
            headers[key] = text
        if first[5:8] == b"1.0" or "close" in headers.get("connection", "").lower():
            self.reusable = False
        self.status = status
        coding = headers.get("transfer-encoding", "").lower()
        length = headers.get("content-length")
        if status in (204, 304):
            self._state = _DONE
        elif coding:
            if coding != "chunked":
                raise ProtocolError(f"unknown transfer coding {coding!r}")
            self._state = _SIZE
        elif length is not None:
            if not (length.isascii() and length.isdigit()):
                raise ProtocolError("malformed content length")
            self._left = int(length)
            self._state = _LENGTH if self._left else _DONE
        else:
            self.reusable = False
            self._state = _CLOSE

    def _feed_length(self, data: bytes) -> None:
        size = len(data)
        if size > self._left:
            data = data[: self._left]
            self.reusable = False
        if data:
            self._parts.append(data)
        self._left -= len(data)
        if not self._left:
            self._state = _DONE

    def _feed_chunked(self, data: bytes) -> None:
        position = 0
        while True:
            if self._state == _DATA:
                part = data[position : position + self._left]
                if part:
                    self._parts.append(part)
                    position += len(part)
                    self._left -= len(part)
                if self._left:
                    return
                self._state = _DATA_END
            end = data.find(b"\r\n", position)
            if end < 0:
                self._buffer = data[position:]
                if len(self._buffer) > MAX_CHUNK_LINE:
                    raise ProtocolError("malformed chunk")
                return
            line = data[position:end]
            position = end + 2
            if self._state == _SIZE:
                self._left = _chunk_size(line)
                self._state = _DATA if self._left else _TRAILER
            elif self._state == _DATA_END:
                if line:
                    raise ProtocolError("malformed chunk")
                self._state = _SIZE
            elif not line:
                self._state = _DONE
                if position < len(data):
                    self.reusable = False
                return


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits or len(digits) > 15 or digits.strip(b"0123456789abcdefABCDEF"):
        raise ProtocolError("malformed chunk size")
    return int(digits, 16)
