"""One HTTP/1.1 connection: httptools parses it, and pipelined requests are handled one after another."""

from __future__ import annotations

import asyncio

from httptools.parser.errors import HttpParserError, HttpParserUpgrade
from httptools.parser.parser import HttpRequestParser

from ..core.errors import ApiError, bad_input
from . import log, untrusted_connections
from .bounds import HEADER_TIMEOUT, Bounds, too_slow
from .flow import Flow
from .request import LINES, MAX_JSON, BodyStream, Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Http(Protocol):
        """Receives the events of connections and their requests."""

        def opened(self, connection: Connection) -> None: ...

        def closed(self, connection: Connection) -> None: ...

        def admit(self, request: Request) -> None: ...

        def handle(self, request: Request) -> None: ...


MAX_PIPELINED = 64


class Connection(Flow):
    """Parses requests, applies the limits and passes each request to the routes in turn."""

    def __init__(self, http: Http) -> None:
        super().__init__()
        self.http = http
        self.parser = HttpRequestParser(self)
        self.inside = False  # the peer is in the sandbox's network: user code, not a gateway
        self._incoming: Request | None = None
        self._refused: tuple[Request, ApiError] | None = None  # the last request, whose bytes were no HTTP
        self._url = b""
        self._bounds = Bounds()
        self._timer: asyncio.TimerHandle | None = None
        self._stay: asyncio.TimerHandle | None = None

    @property
    def trusted(self) -> bool:
        """True if the connection has shown a valid token."""
        return self._bounds.trusted

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=256 * 1024)
        self.inside = untrusted_connections.is_inside(transport)
        stay = untrusted_connections.stay(self.inside)
        self._stay = asyncio.get_running_loop().call_later(stay, self.abort)
        self.http.opened(self)

    def trust(self) -> None:
        """Lift the time limit for connections without a token."""
        self._bounds.trusted = True
        if self._stay is not None:
            self._stay.cancel()
            self._stay = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = True
        self._stop_timer()
        if self._stay is not None:
            self._stay.cancel()
        self.http.closed(self)
        self.resume_writing()
        if self.tunnel is not None:
            self.tunnel.outer_lost()
        for request in [*self._requests, *([self._incoming] if self._incoming else [])]:
            request.abandon()
        self._requests.clear()

    def eof_received(self) -> bool:
        return self.tunnel is not None and self.tunnel.outer_eof()

    # -- parsing ---------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.tunnel is not None:
            self.tunnel.outer_data(data)
            return
        if self.closing or self._refused is not None:
            return
        bounds = self._bounds
        bounds.received(len(data))
        try:
            self.parser.feed_data(data)
            bounds.parsed()
        except HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
        except HttpParserError as error:
            cause = error.__context__
            if cause is not None and not isinstance(cause, ApiError):
                log.failure("parse_failed", cause)
            self._refuse(cause if isinstance(cause, ApiError) else bad_input("the request is not HTTP/1.1"))
        except ApiError as error:
            self._refuse(error)
        else:
            if bounds.in_header and self._timer is None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(HEADER_TIMEOUT, self._refuse, too_slow())

    def on_message_begin(self) -> None:
        self._incoming = Request(self)
        self._url = b""
        self._bounds.begin()

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._bounds.header(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        request, fields = self._incoming, 0
        if request is not None and self._bounds.in_header:
            request.headers[name.lower()] = value
            fields = len(request.headers)
        self._bounds.header(len(name) + len(value) + 4, fields=fields)

    def on_headers_complete(self) -> None:
        self._bounds.end_header()
        self._stop_timer()
        request = self._incoming
        if request is None:
            return
        request.take_head(self._url, self.parser)
        self._requests.append(request)
        if len(self._requests) > MAX_PIPELINED:
            raise bad_input("too many requests are pipelined on this connection: wait for answers")
        if len(self._requests) == 1:
            self._begin(request)
        else:
            self.pause("pipeline")

    def on_body(self, body: bytes) -> None:
        self._bounds.body()
        request = self._incoming
        if request is None:
            return
        if request.discard:
            if not self._bounds.discards(len(body)):
                self.close()
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
        self._bounds.end()
        if request is None:
            return
        request.complete = True
        if self.parser.should_upgrade():
            return  # what follows is not HTTP: `_upgrade` takes over after this feed
        if request.stream is not None:
            request.stream.end()
        elif self._requests and self._requests[0] is request:
            if request.answered and not request.keep_alive:
                self.close()
            elif request.answered:
                self._next()
            elif request.route is not None:
                self.http.handle(request)

    # -- request queue ---------------------------------------------------------------------------------------

    def _begin(self, request: Request) -> None:
        """Begin the next request: reject it, wait for its body, or stream its body to the handler."""
        if self._refused is not None and self._refused[0] is request:
            self._answer_refused(*self._refused)
            return
        try:
            self.http.admit(request)
        except ApiError as error:
            request.discard = True
            request.body = bytearray()
            request.keep_alive = request.keep_alive and self.trusted
            request.respond_error(error)
            return
        if not self.trusted:  # without a token: the body is dropped, and the connection serves one request
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
        """Note that the response was written: close, or go on with the next request."""
        request.answered = True
        if not request.keep_alive:
            if request.complete or self.trusted or self.closing:
                self.close()
            else:
                # If we closed while a body is arriving, the client's kernel would drop the response.
                request.discard = True
                try:
                    self.transport.write_eof()
                except OSError:  # the client has gone
                    self.close()
            return
        if not request.complete:
            request.discard = True
            if request.stream is not None:
                request.stream = None
                self.resume("body")
            return
        if len(self._requests) > 1:
            asyncio.get_running_loop().call_soon(self._next)  # not directly: a long pipeline would recurse
        else:
            self._next()

    def _next(self) -> None:
        if not self._requests or not self._requests[0].answered or self.closing:
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

    # -- close -----------------------------------------------------------------------------------------------

    def _upgrade(self, rest: bytes) -> None:
        request = self._requests[-1]
        route = request.route if len(self._requests) == 1 else None
        if request.answered or route is None or not route.upgrades:
            request.complete = False  # there is no body: else a handler that reads it would wait for ever
            self._refuse(bad_input("nothing can be upgraded here: send a plain request"), request)
            return
        request.body += rest
        request.keep_alive = False  # a rejection ends the connection: its bytes are no longer HTTP
        self.pause("upgrade")
        self.http.handle(request)

    def begin_tunnel(self, tunnel: Any, request: Request, head: str) -> None:
        """Switch to the tunnel: from here on all bytes are its own."""
        self.write(head.encode())
        self.tunnel = tunnel
        request.answered = True
        self._requests.clear()
        if request.body:
            tunnel.outer_data(bytes(request.body))
        tunnel.begin()
        self.resume("upgrade")

    def _refuse(self, error: ApiError, request: Request | None = None) -> None:
        """Report an error after which the bytes cannot be parsed, and close, once earlier requests are answered."""
        self._stop_timer()
        if self.closing or self._refused is not None:
            return
        request = request or self._incoming or Request(self)
        self._refused = request, error
        if request not in self._requests:
            self._requests.append(request)
        if self._requests[0] is request:
            self._answer_refused(request, error)

    def _answer_refused(self, request: Request, error: ApiError) -> None:
        request.keep_alive = False
        if not request.started:
            request.respond_error(error)
        self.close()  # the parser accepts nothing more

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
