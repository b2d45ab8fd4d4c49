"""One HTTP/1.1 connection: httptools feeds it, one request at a time is handled, the next ones wait their turn."""

from __future__ import annotations

import asyncio
from collections import deque

from httptools.parser.errors import HttpParserError, HttpParserUpgrade
from httptools.parser.parser import HttpRequestParser

from ..core.errors import ApiError, bad_input
from . import log, strangers
from .request import LINES, MAX_JSON, BodyStream, Request
from .text import unquote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Http(Protocol):
        """Who is told of connections and their requests."""

        def opened(self, connection: Connection) -> None: ...

        def closed(self, connection: Connection) -> None: ...

        def admit(self, request: Request) -> None: ...

        def handle(self, request: Request) -> None: ...


MAX_HEADER = 32 * 1024
MAX_FIELDS = 100  # each takes many times its length
MAX_PIPELINED = 64
MAX_DISCARDED = 64 * 1024 * 1024
HEADER_TIMEOUT = 30.0  # seconds for a header block that has begun
# The same for who has shown no token: enough for the longest path there is, and for a client to read its refusal.
STRANGE_HEADER = 16 * 1024
STRANGE_DISCARDED = 256 * 1024


class Connection(asyncio.Protocol):
    """Parses, checks the limits, and gives each request to the routes when it is its turn."""

    def __init__(self, http: Http) -> None:
        self.http = http
        self.transport: Any = None
        self.parser = HttpRequestParser(self)
        self.paused_writing = False
        self.trusted = False  # a valid token was seen
        self.inside = False  # it comes from the sandbox's own network: the code's, not a gateway's
        self.tunnel: Any = None
        self._drain: asyncio.Future[None] | None = None
        self._pauses: set[str] = set()
        self._incoming: Request | None = None
        self._url = b""
        self._header_bytes = 0
        self._in_header = False
        self._unseen = 0  # bytes of a message's body that no callback was told of
        self._discarded = 0
        self._requests: deque[Request] = deque()  # the first is being handled
        self._timer: asyncio.TimerHandle | None = None
        self._stay: asyncio.TimerHandle | None = None
        self._closing = False

    # -- the transport ---------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=256 * 1024)
        self.inside = strangers.is_inside(transport)
        self._stay = asyncio.get_running_loop().call_later(strangers.stay(self.inside), self.abort)
        self.http.opened(self)

    def trust(self) -> None:
        """It has shown a token: from now on it may stay."""
        self.trusted = True
        if self._stay is not None:
            self._stay.cancel()
            self._stay = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._stop_timer()
        if self._stay is not None:
            self._stay.cancel()
        self.http.closed(self)
        self.resume_writing()
        if self.tunnel is not None:
            self.tunnel.outer_lost()
        for request in [*self._requests, *([self._incoming] if self._incoming else [])]:
            self._abandon(request)
        self._requests.clear()

    def _abandon(self, request: Request) -> None:
        if request.gone:
            return
        if request.answered:
            # Refused in the middle of its body: its handler would wait for the rest for ever.
            if request.stream is not None and not request.complete:
                request.gone = True
                request.stream.end()
            return
        request.gone = True
        if request.stream is not None:
            request.stream.end()
        if request.on_gone is not None:
            request.on_gone()
        if request.task is not None and not request.shielded:
            request.task.cancel()

    def eof_received(self) -> bool:
        return self.tunnel is not None and self.tunnel.outer_eof()

    def pause_writing(self) -> None:
        self.paused_writing = True
        if self.tunnel is not None:
            self.tunnel.outer_paused()

    def resume_writing(self) -> None:
        self.paused_writing = False
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(None)
        if self.tunnel is not None:
            self.tunnel.outer_resumed()

    async def drain(self) -> None:
        """Wait until the client has read enough."""
        if self.paused_writing:
            if self._drain is None or self._drain.done():
                self._drain = asyncio.get_running_loop().create_future()
            await self._drain

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Hand bytes to the transport."""
        if not self._closing:
            self.transport.write(data)

    def pause(self, why: str) -> None:
        """Stop reading for a reason; reading goes on when every reason is gone."""
        if not self._pauses and not self._closing:
            self.transport.pause_reading()
        self._pauses.add(why)

    def resume(self, why: str) -> None:
        """Take a reason away."""
        if why in self._pauses:
            self._pauses.discard(why)
            if not self._pauses and not self._closing and not self.transport.is_closing():
                self.transport.resume_reading()

    # -- parsing ---------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.tunnel is not None:
            self.tunnel.outer_data(data)
            return
        if self._closing:
            return
        if self._in_header:
            self._header_bytes += len(data)  # a header line without an end reaches no callback
        elif self._incoming is not None:
            # Nor does such a trailer, which the parser keeps, or a chunk's extension.
            self._unseen += len(data)
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
        except HttpParserError as error:
            cause = error.__context__
            if cause is not None and not isinstance(cause, ApiError):
                log.failure("parse_failed", cause)
            self._refuse(cause if isinstance(cause, ApiError) else bad_input("the request is not HTTP/1.1"))
        else:
            if self._in_header:
                if self._header_bytes > 2 * self._max_header:  # most bytes are counted here and in a callback
                    self._refuse(_header_too_long(self._max_header))
                elif self._timer is None:
                    loop = asyncio.get_running_loop()
                    self._timer = loop.call_later(HEADER_TIMEOUT, self._refuse, _header_too_slow())
            elif self._unseen > self._max_header:
                self._refuse(_framing_too_long(self._max_header))

    def on_message_begin(self) -> None:
        self._incoming = Request(self)
        self._url = b""
        self._header_bytes = self._unseen = 0
        self._in_header = True

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        request = self._incoming
        if request is not None and self._in_header:
            request.headers[name.lower()] = value
            if len(request.headers) > MAX_FIELDS:
                raise ApiError(431, "header_too_large", f"the header block has over {MAX_FIELDS} fields")

    @property
    def _max_header(self) -> int:
        return MAX_HEADER if self.trusted else STRANGE_HEADER

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self._max_header:
            raise _header_too_long(self._max_header)

    def on_headers_complete(self) -> None:
        self._in_header = False
        self._stop_timer()
        request = self._incoming
        if request is None:
            return
        parser = self.parser
        path, _, request.raw_query = self._url.partition(b"?")
        request.path = unquote(path)
        request.method = parser.get_method().decode("latin-1")
        request.http10 = parser.get_http_version() == "1.0"
        request.keep_alive = parser.should_keep_alive()
        if request.method == "HEAD":
            request.head_only = True
            request.method = "GET"
        self._requests.append(request)
        if len(self._requests) > MAX_PIPELINED:
            raise bad_input("too many requests wait on this connection")
        if len(self._requests) == 1:
            self._begin(request)
        else:
            self.pause("pipeline")

    def on_body(self, body: bytes) -> None:
        self._unseen = 0
        request = self._incoming
        if request is None:
            return
        if request.discard:
            self._discarded += len(body)
            if self._discarded > (MAX_DISCARDED if self.trusted else STRANGE_DISCARDED):
                self._close()
        elif request.stream is not None:
            request.stream.feed(body)
        else:
            request.body += body
            if len(request.body) > MAX_JSON:
                request.discard = True
                request.body = bytearray()
                too_large = ApiError(413, "too_large", f"the body is over {MAX_JSON} bytes", field="body")
                if self._requests[0] is request:
                    request.respond_error(too_large)
                else:
                    raise too_large

    def on_message_complete(self) -> None:
        request, self._incoming = self._incoming, None
        self._discarded = self._unseen = 0
        if request is None:
            return
        request.complete = True
        if self.parser.should_upgrade():
            return  # what follows is no HTTP: `_upgrade` goes on when this feed is over
        if request.stream is not None:
            request.stream.end()
        elif self._requests and self._requests[0] is request:
            if request.answered and not request.keep_alive:
                self._close()
            elif request.answered:
                self._next()
            elif request.route is not None:
                self.http.handle(request)

    # -- one request after the other -------------------------------------------------------------------------

    def _begin(self, request: Request) -> None:
        """Its turn has come and its headers are here: refuse it, or wait for its body, or hand its body over."""
        try:
            self.http.admit(request)
        except ApiError as error:
            request.discard = True
            request.body = bytearray()
            request.keep_alive = request.keep_alive and self.trusted
            request.respond_error(error)
            return
        if not self.trusted:  # whoever has no token has no body that is kept, and one question
            request.discard = True
            request.keep_alive = False
            self.http.handle(request)
            return
        if request.headers.get(b"expect", b"").lower() == b"100-continue" and not request.complete:
            self.write((LINES[100] + "\r\n").encode())
        if request.route.streams:
            request.stream = BodyStream(request)
            if request.body:
                request.stream.feed(bytes(request.body))
                request.body = bytearray()
            if request.complete:
                request.stream.end()
            self.http.handle(request)

    def answered(self, request: Request) -> None:
        """The answer is out: close, or go on with the next request."""
        request.answered = True
        if not request.keep_alive:
            if request.complete or self.trusted or self._closing:
                self._close()
            else:
                # Were it closed with a body on its way, the client's kernel would drop the answer.
                request.discard = True
                try:
                    self.transport.write_eof()
                except OSError:  # it has gone
                    self._close()
            return
        if not request.complete:
            request.discard = True
            if request.stream is not None:
                request.stream = None
                self.resume("body")
            return
        if len(self._requests) > 1:
            asyncio.get_running_loop().call_soon(self._next)  # not from here: a long pipeline would recurse
        else:
            self._next()

    def _next(self) -> None:
        if not self._requests or not self._requests[0].answered or self._closing:
            return
        self._requests.popleft()
        if not self._requests:
            return
        request = self._requests[0]
        if len(self._requests) == 1:
            self.resume("pipeline")
        self._begin(request)
        if request.complete and not request.answered and not request.route.streams:
            self.http.handle(request)
        elif request.complete and request.answered:
            asyncio.get_running_loop().call_soon(self._next)

    # -- ends ------------------------------------------------------------------------------------------------

    def _upgrade(self, rest: bytes) -> None:
        request = self._requests[0] if len(self._requests) == 1 else None
        if request is None or request.answered or request.route is None or not request.route.upgrades:
            self._refuse(bad_input("this route has no upgrade"))
            return
        request.complete = True
        request.body += rest
        request.keep_alive = False  # a refusal ends the connection: its bytes are no HTTP any more
        self._incoming = None
        self.pause("upgrade")
        self.http.handle(request)

    def begin_tunnel(self, tunnel: Any, request: Request, head: str) -> None:
        """From here on the bytes are the tunnel's."""
        self.write(head.encode())
        self.tunnel = tunnel
        request.answered = True
        self._requests.clear()
        if request.body:
            tunnel.outer_data(bytes(request.body))
        tunnel.begin()
        self.resume("upgrade")

    def _refuse(self, error: ApiError) -> None:
        """The byte stream cannot be followed any more: say why and close."""
        self._stop_timer()
        if self._closing:
            return
        waiting = self._requests[0] if self._requests else None
        if waiting is None or not (waiting.answered or (waiting.complete and waiting.task)):
            request = waiting or self._incoming or Request(self)
            request.keep_alive = False
            request.respond_error(error)
        self._close()  # the parser takes nothing more

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        if not self._closing:
            self._closing = True
            self.transport.close()

    def close_when_idle(self) -> None:
        """Close now, or after the answer being made."""
        if not self._requests:
            self._close()
        for request in self._requests:
            request.keep_alive = False

    def abort(self) -> None:
        """Cut the connection: the client sees that the answer is not complete."""
        self._closing = True
        self.transport.abort()


def _header_too_long(most: int) -> ApiError:
    return ApiError(431, "header_too_large", f"the header block is over {most} bytes")


def _framing_too_long(most: int) -> ApiError:
    return ApiError(431, "header_too_large", f"a chunk's extension or the trailer is over {most} bytes")


def _header_too_slow() -> ApiError:
    return ApiError(408, "header_timeout", f"the header block took over {HEADER_TIMEOUT:g} s")
