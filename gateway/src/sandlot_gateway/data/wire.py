"""Parses HTTP/1.1 responses, without I/O: framing, keep-alive, 1xx, upgrades, limits."""

from __future__ import annotations

from typing import Any

import httptools
from sandlot_contract.framing import Framing

from .errors import WireError

# Valid for one hop only (RFC 9110 section 7.6.1): never forwarded.
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
MAX_HEAD = 64 * 1024  # bytes of status line and headers, 1xx responses included

Headers = list[tuple[bytes, bytes]]


class ResponseReader:
    """A parser of one connection's responses, one at a time.

    `expect` begins a response, `feed` and `eof` take input, and the attributes are the state. `feed` and `eof`
    raise WireError for an invalid response.
    """

    __slots__ = (
        "_framing",
        "_head_size",
        "_informational",
        "_no_body",
        "_parser",
        "_stale",
        "_until_eof",
        "_upgrade",
        "body_size",
        "complete",
        "connection",
        "excess",
        "head_complete",
        "headers",
        "pieces",
        "reusable",
        "status",
        "upgraded",
    )

    def __init__(self) -> None:
        self._parser: Any = httptools.HttpResponseParser(self)
        self._framing = Framing()
        self._stale = False
        self.pieces: list[bytes] = []  # body bytes not yet taken
        self.excess = False  # bytes arrived outside a response: the connection must not be reused
        self.expect(no_body=False)

    def expect(self, *, no_body: bool, upgrade: bool = False) -> None:
        """Begin a response; `no_body` for the response to HEAD, whose length headers describe no body.

        `upgrade`: the request asks for another protocol; only then may a 101 switch to it.
        """
        if self._stale:
            self._parser = httptools.HttpResponseParser(self)
            self._stale = False
        self.status = 0
        self.headers: Headers = []
        self.connection = b""  # the Connection header, lower case
        self.head_complete = False
        self.complete = False
        self.reusable = False
        self.upgraded = False
        self.body_size = 0  # bytes in `pieces`
        self._no_body = no_body
        self._upgrade = upgrade
        self._until_eof = True
        self._informational = False
        self._head_size = 0
        self._framing.end()

    def feed(self, data: bytes) -> None:
        if self.upgraded:
            self._take(data)
            return
        if self.complete:
            self.excess = True
            return
        if not self.head_complete:
            self._head_size += len(data)
        self._framing.arrived(len(data))
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            if rest:
                self._take(rest)
        except httptools.HttpParserError as error:
            if not self.complete:
                cause = error.__context__ if isinstance(error.__context__, WireError) else error
                raise WireError(str(cause) or type(cause).__name__) from error
            self.excess = True
        if not self.head_complete and self._head_size > MAX_HEAD:
            raise WireError(f"the head is larger than {MAX_HEAD} bytes")
        if self._framing.size > MAX_HEAD:
            raise WireError(f"chunk extensions or trailers are larger than {MAX_HEAD} bytes")

    def eof(self) -> None:
        """Process the end of file. Raises WireError inside a response."""
        if self.complete or self.upgraded:
            return
        if not self.head_complete or not self._until_eof:
            raise WireError("the connection ended inside the response" if self._head_size else "no response")
        self.complete = True

    def take(self) -> bytes:
        """Return all body bytes that have arrived since the last call."""
        pieces = self.pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self.body_size = 0
        return data

    def close(self) -> None:
        """Break the reference cycle with the parser, which would otherwise wait for the garbage collector."""
        self._parser = None

    def _take(self, data: bytes) -> None:
        self.pieces.append(data)
        self.body_size += len(data)

    # Callbacks of httptools.

    def on_message_begin(self) -> None:
        if self.complete:
            self.excess = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head_complete:
            return  # a trailer
        name = name.lower()
        if name == b"content-length":
            self._until_eof = False
        elif name in HOP_BY_HOP:
            if name == b"transfer-encoding":
                self._until_eof = not value.lower().endswith(b"chunked")
            elif name == b"connection":
                self.connection += b"," + value.lower() if self.connection else value.lower()
            return
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        status = self._parser.get_status_code()
        if status < 200:
            if status == 101:
                if not self._upgrade:
                    raise WireError("status 101 without a request for another protocol")
                if not self._parser.should_upgrade() or not self._until_eof:
                    raise WireError("status 101 without an Upgrade header")
                self.upgraded = True
            else:
                if status < 100 or not self._until_eof:
                    raise WireError("a 1xx response with a body" if status >= 100 else f"status {status}")
                self._informational = True
                return
        elif status > 599:  # uvicorn has no status line for it
            raise WireError(f"status {status}")
        self.status = status
        self.head_complete = True
        self._framing.begin()
        if self.connection and self.connection not in (b"keep-alive", b"close"):
            named = {token.strip() for token in self.connection.split(b",")}
            self.headers = [header for header in self.headers if header[0] not in named]
        if self._no_body or status in (204, 304):
            # The parser would wait for a body that never comes; a new one parses the next response.
            self._stale = True
            self.complete = True
            self._framing.end()
            self.reusable = self._parser.get_http_version() == "1.1" and b"close" not in self.connection

    def on_body(self, data: bytes) -> None:
        self._framing.content()
        if self.complete:
            self.excess = True
            return
        self._take(data)

    def on_message_complete(self) -> None:
        if self._informational:
            self._informational = False
            self.headers = []
            self.connection = b""
        elif self.head_complete and not self.complete and not self.upgraded:
            self.complete = True
            self._framing.end()
            self.reusable = self._parser.should_keep_alive()
