"""Reads one request of a sidecar, authenticated by headers, and answers it or gives its connection to a link."""

from __future__ import annotations

import asyncio
import http
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import httptools
import msgspec
from sandlot_contract.headers import GATEWAY, INSTANCE_KEY, SENDER_KEY, SIGNATURE_KEY, VERDICT
from sandlot_contract.ids import InstanceId
from sandlot_contract.sidecar import LINK_PATH, WEBHOOK_PATH

from sandlot_gateway.webhook_limits import Budget, Connections
from sandlot_gateway.webhooks import Answer, WebhookFault

_MAX_HEAD = 8 << 10  # bytes; a sidecar's headers have some 500
_MAX_BODY = 8 << 20  # bytes; a state document contains the claim's metadata
_LEAST_SHARE = 16 << 10  # bytes that a request reserves at least, so that the budgets limit tiny ones, too
_TIME = 10.0  # seconds for a whole request; a sidecar times out after 5
_PIECE = 64 << 10  # bytes of a link that are read ahead
_LINGER = 1.0  # seconds until a rejected sender is disconnected
_LINGER_BYTES = 256 << 10  # or after this many bytes
_HEADERS = frozenset({INSTANCE_KEY, SENDER_KEY, SIGNATURE_KEY, b"content-length", b"transfer-encoding"})
_LINK = LINK_PATH.encode() + b"?"
_SAID = {
    200: None,
    400: "the body is not a state document of this instance",
    401: "the webhook's credential is not that of its instance's sidecar; do the master keys differ?",
    404: f"this port only serves POST {WEBHOOK_PATH}; send other requests to the gateway's main port",
    408: f"the request did not arrive within {_TIME:g} s",
    410: "no such instance: it has ended, or this gateway does not know it",
    411: "a webhook needs a Content-Length",
    413: f"the body is larger than {_MAX_BODY} bytes",
    431: f"the headers are larger than {_MAX_HEAD} bytes",
    503: "the instance is not known yet, or too many webhooks arrive at once: send it again",
}


@dataclass(frozen=True)
class LinkRequest:
    """A sidecar's request for a connection to a service, whose head is all that has been read."""

    instance_id: InstanceId
    target: bytes  # path and query
    signature: str
    proof: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


@dataclass(frozen=True)
class Handlers:
    """`proof` checks a credential, and returns what shows its sender that a gateway answers.

    `receive` handles a signed body, `counted` counts earlier rejections. `link` takes over a connection to a service.
    """

    proof: Callable[[InstanceId, str], str | None]
    receive: Callable[[InstanceId, str, bytes], Answer]
    counted: Callable[[WebhookFault], None]
    link: Callable[[LinkRequest], None] | None = None


class WebhookConnection(asyncio.Protocol):
    """One connection. Buffers no body without a credential, and nothing after the response."""

    def __init__(self, handlers: Handlers, *, connections: Connections, budget: Budget) -> None:
        self._handlers = handlers
        self._connections = connections
        self._budget = budget
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._peer: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._url = b""
        self._headers: dict[bytes, str] = {}
        self._head = 0  # bytes of the head
        self._has_head = False
        self._is_complete = False
        self._share: tuple[InstanceId, int] | None = None  # of the budget: instance, bytes
        self._body: list[bytes] = []
        self._proof: str | None = None
        self._answered = False
        self._dropped = 0  # bytes received after the response
        self._is_link = False
        self._stream: asyncio.StreamReaderProtocol | None = None  # of a link that was taken over

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass
        address = transport.get_extra_info("peername")
        # A Unix socket's peers have no address, and only the gateway's user may connect.
        self._peer = address[0] if isinstance(address, tuple) and address else None
        self._timer = asyncio.get_running_loop().call_later(_TIME, self._answer, 408)
        self._connections.came(self, self._peer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._release()
        self._connections.went(self, self._peer)
        self._parser = None
        if self._stream is not None:
            self._stream.connection_lost(exc)

    def cut(self) -> None:
        """Close without a response."""
        if self._transport is not None:
            self._transport.abort()
        self._answered = True
        self._release()
        self._connections.known(self, self._peer)

    def eof_received(self) -> bool:
        return self._stream is not None and bool(self._stream.eof_received())

    def pause_writing(self) -> None:
        if self._stream is not None:
            self._stream.pause_writing()

    def resume_writing(self) -> None:
        if self._stream is not None:
            self._stream.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._stream is not None:
            self._stream.data_received(data)
            return
        if self._answered:
            self._dropped += len(data)
            if self._dropped > _LINGER_BYTES:
                self.cut()
            return
        self._head += 0 if self._has_head else len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            raise
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._is_link:
                self._answer(400)
        if self._is_link and not self._answered:
            self._take_over()
            return
        if self._is_complete and not self._answered:
            instance_id, signature = self._instance_id(), self._header(SIGNATURE_KEY)
            self._answer(*self._handlers.receive(instance_id, signature, b"".join(self._body)))
        elif not self._has_head and self._head > _MAX_HEAD:
            self._answer(431)

    # Callbacks of httptools.

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in _HEADERS:
            self._headers[name] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._answered or self._is_complete:
            return  # a second request: only one is allowed
        self._has_head = True
        self._is_link = self._url.startswith(_LINK) and self._handlers.link is not None
        refusal = self._refusal()
        if refusal is not None:
            self._answer(refusal)

    def on_body(self, body: bytes) -> None:
        if not self._answered and not self._is_complete:
            self._body.append(body)

    def on_message_complete(self) -> None:
        self._is_complete = True

    # Responses.

    def _refusal(self) -> int | None:
        """Return the status to reject the request with; None: it has reserved its share of the budget."""
        if self._parser.get_method() != b"POST" or not (self._is_link or self._url == WEBHOOK_PATH.encode()):
            return 404
        instance_id = self._instance_id()
        self._proof = self._handlers.proof(instance_id, self._header(SENDER_KEY))
        if self._proof is None:
            self._handlers.counted(WebhookFault.UNSIGNED)
            return 401
        self._connections.known(self, self._peer)
        if self._is_link:
            return None
        length = self._header(b"content-length")
        if b"transfer-encoding" in self._headers or not length.isdecimal():
            return 411
        if int(length) > _MAX_BODY:
            self._handlers.counted(WebhookFault.MALFORMED)
            return 413
        share = max(int(length), _LEAST_SHARE)
        if not self._budget.take(instance_id, share):
            self._handlers.counted(WebhookFault.TOO_MANY)
            return 503
        self._share = (instance_id, share)
        return None

    def _instance_id(self) -> InstanceId:
        """Return the sender's instance id, which only its credential proves."""
        return InstanceId(self._header(INSTANCE_KEY))

    def _header(self, name: bytes) -> str:
        return self._headers.get(name, "")

    def _take_over(self) -> None:
        """Have `link` serve the connection, as streams."""
        transport, link = self._transport, self._handlers.link
        if transport is None or link is None or self._proof is None or transport.is_closing():
            return
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_PIECE, loop=loop)
        stream = self._stream = asyncio.StreamReaderProtocol(reader, loop=loop)
        stream.connection_made(transport)
        writer = asyncio.StreamWriter(transport, stream, reader, loop)
        signature = self._header(SIGNATURE_KEY)
        link(LinkRequest(self._instance_id(), self._url, signature, self._proof, reader, writer))

    def _answer(self, status: int, verdict: str | None = None) -> None:
        """Send the response; read on for a moment, since a reset would lose it."""
        transport, detail = self._transport, _SAID.get(status)
        if self._answered or transport is None or transport.is_closing():
            return
        self._answered = True
        self._release()
        content = msgspec.json.encode({} if detail is None else {"detail": detail, "errors": []})
        head = f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
        if status == 503:
            head += "Retry-After: 1\r\n"
        if self._proof is not None:
            head += f"{GATEWAY}: {self._proof}\r\n"
        if verdict is not None:
            head += f"{VERDICT}: {verdict}\r\n"
        head += f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        transport.write(head.encode() + content)
        if self._timer is not None:
            self._timer.cancel()
        if self._is_complete:
            transport.close()
        else:
            transport.write_eof()
            self._timer = asyncio.get_running_loop().call_later(_LINGER, self.cut)

    def _release(self) -> None:
        self._body.clear()
        if self._share is not None:
            share, self._share = self._share, None
            self._budget.give(*share)
