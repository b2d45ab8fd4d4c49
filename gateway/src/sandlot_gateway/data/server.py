"""Extends uvicorn's HTTP protocol: one write for head and body, and limits for unauthenticated clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

import msgspec
from sandlot_contract.framing import Framing
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .answers import Refusal
from .request_id import identify

_MAX_HEAD = 64 << 10  # bytes of a request's line and headers
_FIRST_HEAD = 60.0  # seconds for a connection's first head to arrive
_UNJUDGED = 16 << 10  # bytes of a body that are buffered before the application has authenticated the request

# Keys of a request's scope: the application has started; the body of an unauthenticated sender was dropped.
BEGUN = "sandlot.begun"
DROPPED = "sandlot.dropped"


class OneWriteProtocol(HttpToolsProtocol):
    """Passed to uvicorn as `http=`.

    uvicorn writes the head when the application starts the response and the body when it comes, a system call
    and (with TCP_NODELAY) a packet each. Holding the head back until the first byte of the body, for at most one
    loop iteration, is worth a fifth of the gateway's throughput: docs/adr/0002.

    It also bounds what an unauthenticated client can make it hold, for which uvicorn has no limits: the size of a
    head, the wait for one, and body bytes before the application starts. A DROPPED request is answered 401.
    """

    _in_head = False
    _in_body = False
    _head = 0  # bytes of an incomplete head
    _refusal: Refusal | None = None  # the last answer on this connection, to bytes behind requests that run
    _patience: asyncio.TimerHandle | None = None
    _turned_away = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._turned_away = not self.has_room(transport.get_extra_info("socket").fileno())
        super().connection_made(_HeadHolder(cast(asyncio.Transport, transport), self.loop))
        self._patience = self.loop.call_later(_FIRST_HEAD, transport.close)
        self._framing = Framing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._be_patient()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        if self._turned_away:
            text = "the gateway has nearly as many files open as it may: try again, start more gateways, or raise the limit"
            self._refuse(Refusal(503, "busy", text))
            return
        self._framing.arrived(len(data))
        super().data_received(data)
        if self._in_head:
            self._head += len(data)
            if self._head > _MAX_HEAD:
                self._refuse_size()
                self._in_head = False
        elif self._framing.size > _MAX_HEAD:
            self._refuse_size()
            self._framing.end()

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else a trailer, which is unused and has no size limit
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head = 0
        self._framing.begin()
        self._be_patient()
        before = self.cycle
        super().on_headers_complete()  # raises for a target without a path
        self._in_body = self.cycle is not before  # else `cycle` is an earlier request's, or None

    def is_known(self, scope: dict[str, Any]) -> bool:
        """Return whether this request has a valid credential; `protocol` overrides it."""
        return True

    def has_room(self, number: int) -> bool:
        """Return whether the process may serve a connection whose file has this number; `protocol` overrides it."""
        return True

    def on_message_complete(self) -> None:
        self._framing.end()
        self._in_body = False
        super().on_message_complete()

    def on_body(self, body: bytes) -> None:
        self._framing.content()
        scope = cast("dict[str, Any]", self.scope)
        # A thousand connections may be read before the application starts with the first of them.
        if BEGUN not in scope and len(self.cycle.body) + len(body) > _UNJUDGED and not self.is_known(scope):
            scope[DROPPED] = True
        if DROPPED in scope:
            self.cycle.body.clear()
            body = b""
        super().on_body(body)

    def _be_patient(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no HTTP; uvicorn calls it."""
        self._refuse(Refusal(400, "bad_request", "this is no valid HTTP/1.1: look at what sends it"))

    def _refuse_size(self) -> None:
        text = f"the head, a chunk's extension or the trailer is larger than {_MAX_HEAD} bytes: send fewer or shorter fields"
        self._refuse(Refusal(431, "header_too_large", text))

    def on_response_complete(self) -> None:
        waits = bool(self.pipeline)
        super().on_response_complete()
        if self._refusal is not None and not waits and not self.transport.is_closing():
            self._write_refusal(self._refusal)

    def _refuse(self, refusal: Refusal) -> None:
        """Answer what the application does not get once all earlier requests are answered, and close."""
        if self._refusal is not None or self.transport.is_closing():
            return
        if self._in_body and self.pipeline:
            self.pipeline.popleft()  # the request that is being read, whose turn would come with half a body
        elif self._in_body:
            if self.cycle.response_started:
                self.transport.close()  # a client would take the refusal for a part of the response
            else:
                self._write_refusal(refusal)
            return
        if self.cycle is None or (self.cycle.response_complete and not self.pipeline):
            self._write_refusal(refusal)
        else:
            self._refusal = refusal

    def _write_refusal(self, refusal: Refusal) -> None:
        """With the fields of both planes' errors."""
        message = refusal.document["message"]
        body = msgspec.json.encode({**refusal.document, "detail": message, "errors": []})
        own = next((value for name, value in self.headers or () if name == b"x-request-id"), b"")
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"x-request-id: %b\r\nconnection: close\r\n\r\n"
            % (refusal.status, HTTPStatus(refusal.status).phrase.encode(), len(body), identify(own))
            + body
        )
        self.transport.close()

    def handle_websocket_upgrade(self) -> None:
        if self.scope["method"] != "GET":
            # The WebSocket implementation would neither answer it nor close.
            self._refuse(Refusal(400, "bad_request", "a WebSocket handshake must be a GET"))
            return
        holder = self.transport
        if isinstance(holder, _HeadHolder):
            holder.flush()
            self.transport = holder.plain
        super().handle_websocket_upgrade()


def protocol(
    *, is_known: Callable[[dict[str, Any]], bool], has_room: Callable[[int], bool]
) -> type[OneWriteProtocol]:
    """Return the protocol class with these checks of credentials and of open files."""

    class CheckingProtocol(OneWriteProtocol):
        def is_known(self, scope: dict[str, Any]) -> bool:
            return is_known(scope)

        def has_room(self, number: int) -> bool:
            return has_room(number)

    return CheckingProtocol


class _HeadHolder(asyncio.Transport):
    """A transport that holds a response's head until more data, a close or the next loop iteration."""

    __slots__ = ("_head", "_loop", "plain", "write_plain")

    def __init__(self, plain: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.plain = plain
        self.write_plain = plain.write
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:  # type: ignore[override]
        if self._head:
            head, self._head = self._head, b""
            if len(data) > 16384:
                self.plain.writelines((head, data))
            else:
                self.write_plain(head + data)
        elif data.startswith(b"HTTP/1.1 ") and data[9:10] != b"1":
            self._head = data
            self._loop.call_soon(self.flush)
        elif data:
            self.write_plain(data)

    def flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self.write_plain(head)

    def close(self) -> None:
        self.flush()
        self.plain.close()

    def abort(self) -> None:
        self._head = b""
        self.plain.abort()

    def is_closing(self) -> bool:
        return self.plain.is_closing()

    def pause_reading(self) -> None:
        self.plain.pause_reading()

    def resume_reading(self) -> None:
        self.plain.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.plain.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.plain.set_protocol(protocol)

    def get_write_buffer_size(self) -> int:
        return self.plain.get_write_buffer_size() + len(self._head)
