"""One HTTP request and its response, as handlers see them."""

from __future__ import annotations

import asyncio
import json

from ..core.errors import ApiError, ClientGone, bad_input
from .text import parse_query, unquote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    class Connection(Protocol):
        """The parts of a connection that a request uses."""

        transport: Any
        paused_writing: bool
        inside: bool

        @property
        def trusted(self) -> bool: ...

        def write(self, data: bytes | bytearray | memoryview) -> None: ...

        async def drain(self) -> None: ...

        def pause(self, why: str) -> None: ...

        def resume(self, why: str) -> None: ...

        def answered(self, request: Request) -> None: ...

        def begin_tunnel(self, tunnel: Any, request: Request, head: str) -> None: ...

        def trust(self) -> None: ...

        def abort(self) -> None: ...


MAX_JSON = 8 * 1024 * 1024
HIGH_WATER = 256 * 1024

REASONS = {
    100: "Continue", 101: "Switching Protocols", 200: "OK", 202: "Accepted", 206: "Partial Content",
    400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 409: "Conflict", 410: "Gone", 411: "Length Required", 413: "Content Too Large",
    416: "Range Not Satisfiable", 431: "Request Header Fields Too Large", 502: "Bad Gateway",
    503: "Service Unavailable", 507: "Insufficient Storage",
}  # fmt: skip
LINES = {status: f"HTTP/1.1 {status} {reason}\r\n" for status, reason in REASONS.items()}
JSON_TYPE = "application/json"


class Request:
    """A request and the ways to respond to it; exactly one response is sent."""

    __slots__ = (
        "answered", "body", "complete", "connection", "discard", "gone", "head_only", "headers", "http10",
        "keep_alive", "match", "method", "on_gone", "path", "raw_query", "route", "shielded", "started", "stream", "task",
    )  # fmt: skip

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.method = ""
        self.path = ""
        self.raw_query = b""
        self.headers: dict[bytes, bytes] = {}
        self.body = bytearray()
        self.stream: BodyStream | None = None
        self.complete = False  # the whole body has been read
        self.discard = False  # the body is read and dropped
        self.started = False  # part of the response may have been sent
        self.answered = False  # the whole response has been written
        self.head_only = False
        self.keep_alive = True
        self.http10 = False
        self.gone = False
        self.route: Any = None
        self.match = ""
        self.on_gone: Callable[[], None] | None = None
        self.task: asyncio.Task[Any] | None = None
        self.shielded = False  # the handler finishes even if the client disconnects

    def take_head(self, url: bytes, parser: Any) -> None:
        """Set method, path and options from the parsed header block."""
        path, _, self.raw_query = url.partition(b"?")
        self.path = unquote(path)
        self.method = parser.get_method().decode("latin-1")
        self.http10 = parser.get_http_version() == "1.0"
        self.keep_alive = parser.should_keep_alive()
        if self.method == "HEAD":
            self.head_only = True
            self.method = "GET"

    def abandon(self) -> None:
        """Handle a client that has disconnected."""
        if self.gone:
            return
        if self.answered:
            # Rejected in the middle of its body: the handler would wait for the rest forever.
            if self.stream is not None and not self.complete:
                self.gone = True
                self.stream.end()
            return
        self.gone = True
        if self.stream is not None:
            self.stream.end()
        if self.on_gone is not None:
            self.on_gone()
        if self.task is not None and not self.shielded:
            self.task.cancel()

    def header(self, name: bytes) -> str | None:
        """Return a header's value; the name is in lower case."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def query(self) -> dict[str, str]:
        """Return the fields of the query string."""
        return parse_query(self.raw_query)

    def json(self) -> dict[str, Any]:
        """Return the body as a JSON object; an empty body is an empty object. Raises a 400."""
        if not self.body:
            return {}
        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise bad_input(f"the body is not valid JSON: {error}", field="body") from error
        if not isinstance(document, dict):
            raise bad_input("the body must be a JSON object", field="body")
        return document

    # -- responses -------------------------------------------------------------------------------------------

    def respond(
        self,
        body: bytes | str = b"",
        *,
        status: int = 200,
        kind: str = JSON_TYPE,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Respond with one write; does nothing if the client has disconnected."""
        if self.gone or self.answered:
            return
        data = body.encode() if isinstance(body, str) else body
        self.started = True
        head = self._head(status, kind, headers, f"Content-Length: {len(data)}\r\n")
        self.connection.write(head if self.head_only else head + data)
        self.connection.answered(self)

    def respond_json(
        self, document: object, *, status: int = 200, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        """Respond with a JSON document."""
        self.respond(json.dumps(document, separators=(",", ":")), status=status, headers=headers)

    def respond_error(self, error: ApiError) -> None:
        """Respond with an error document."""
        headers = error.headers
        if error.status == 401:
            headers = (*headers, ("WWW-Authenticate", "Bearer"))
        self.respond_json(error.body(), status=error.status, headers=headers)

    def start(
        self,
        *,
        status: int = 200,
        kind: str,
        length: int | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> Answer:
        """Begin a response in parts, chunked if `length` is None. Raises ClientGone."""
        if self.gone:
            raise ClientGone("the client disconnected before the response")
        self.started = True
        if length is not None:
            framing = f"Content-Length: {length}\r\n"
        elif self.http10:
            self.keep_alive = False
            framing = ""
        else:
            framing = "Transfer-Encoding: chunked\r\n"
        chunked = length is None and not self.http10
        return Answer(self, self._head(status, kind, headers, framing), chunked=chunked)

    def _head(self, status: int, kind: str, headers: tuple[tuple[str, str], ...], framing: str) -> bytes:
        lines = [LINES[status], f"Content-Type: {kind}\r\n", framing]
        for name, value in headers:
            lines.append(f"{name}: {value}\r\n")
        if not self.keep_alive:
            lines.append("Connection: close\r\n")
        lines.append("\r\n")
        return "".join(lines).encode("latin-1", "replace")


class Answer:
    """A response in parts; the head is sent with the first of them."""

    __slots__ = ("_chunked", "_head", "_request")

    def __init__(self, request: Request, head: bytes, *, chunked: bool) -> None:
        self._request = request
        self._head = head
        self._chunked = chunked

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send a part, and wait while the client reads slower than we write. Raises ClientGone."""
        request = self._request
        if request.gone:
            raise ClientGone("the client disconnected in the middle of the response")
        head, self._head = self._head, b""
        if request.head_only:
            request.connection.write(head)
            return
        if self._chunked and len(data):
            request.connection.write(b"%s%x\r\n%s\r\n" % (head, len(data), data))
        elif head or len(data):
            request.connection.write(b"%s%s" % (head, data) if head else data)
        if request.connection.paused_writing:
            await request.connection.drain()
            if request.gone:
                raise ClientGone("the client disconnected in the middle of the response")

    def finish(self, last: bytes = b"") -> None:
        """Send the last part and end the response."""
        request = self._request
        if request.gone or request.answered:
            return
        head, self._head = self._head, b""
        if request.head_only:
            last = b""
        elif self._chunked:
            last = b"%x\r\n%s\r\n0\r\n\r\n" % (len(last), last) if last else b"0\r\n\r\n"
        if head or last:
            request.connection.write(head + last)
        request.connection.answered(request)


class BodyStream:
    """A request's body as it arrives; a handler that falls behind pauses reading from the socket."""

    __slots__ = ("_chunks", "_ended", "_request", "_size", "_waiter")

    def __init__(self, request: Request) -> None:
        self._request = request
        self._chunks: list[bytes] = []
        self._size = 0
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    def feed(self, data: bytes) -> None:
        """Append a part; called by the connection."""
        self._chunks.append(data)
        self._size += len(data)
        if self._size > HIGH_WATER:
            self._request.connection.pause("body")
        self._wake()

    def end(self) -> None:
        """End the body, complete or cut off; called by the connection."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def read(self) -> bytes:
        """Return the next bytes, b"" at the end. Raises ClientGone if the body will never be complete."""
        while not self._chunks:
            if self._request.gone and not self._request.complete:
                raise ClientGone("the client disconnected in the middle of the body")
            if self._ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        self._request.connection.resume("body")
        return data
