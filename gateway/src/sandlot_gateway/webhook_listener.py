"""Listens for sidecars' webhooks and links: one request a connection, authenticated by headers, with limited memory."""

from __future__ import annotations

import asyncio
import http
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import httptools
import msgspec
from sandlot_contract.headers import GATEWAY, INSTANCE_KEY, SENDER_KEY, SIGNATURE_KEY, VERDICT
from sandlot_contract.ids import InstanceId
from sandlot_contract.sidecar import LINK_PATH, WEBHOOK_PATH

from sandlot_gateway.sidecar_tls import SidecarTls
from sandlot_gateway.webhooks import Answer, WebhookFault

_BACKLOG = 4096  # asyncio calls listen() again, with 100 by default, which would refuse many sidecars at once
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
class Bounds:
    """Limits; a stranger is a connection without a valid credential so far."""

    strangers: int = 2048
    strangers_of_peer: int = 256  # several nodes' sidecars may share one address behind NAT
    bytes_in_flight: int = 32 << 20
    bytes_of_instance: int = 16 << 20


@dataclass
class _Budget:
    """Reserved bytes of request bodies, in total and by instance."""

    bounds: Bounds
    taken: int = 0
    by_instance: dict[InstanceId, int] = field(default_factory=dict[InstanceId, int])

    def take(self, instance_id: InstanceId, size: int) -> bool:
        own = self.by_instance.get(instance_id, 0) + size
        if self.taken + size > self.bounds.bytes_in_flight or own > self.bounds.bytes_of_instance:
            return False
        self.taken += size
        self.by_instance[instance_id] = own
        return True

    def give(self, instance_id: InstanceId, size: int) -> None:
        self.taken -= size
        left = self.by_instance[instance_id] - size
        if left:
            self.by_instance[instance_id] = left
        else:
            del self.by_instance[instance_id]


@dataclass(frozen=True)
class LinkRequest:
    """A sidecar's request for a connection to a service, whose head is all that has been read."""

    instance_id: InstanceId
    target: bytes  # path and query
    signature: str
    proof: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class WebhookListener:
    """`proof` checks a credential, and returns what shows its sender that a gateway answers.

    `receive` handles a signed body, `counted` counts earlier rejections. `link` takes over a connection to a service.
    """

    def __init__(
        self,
        *,
        proof: Callable[[InstanceId, str], str | None],
        receive: Callable[[InstanceId, str, bytes], Answer],
        counted: Callable[[WebhookFault], None],
        link: Callable[[LinkRequest], None] | None = None,
        bounds: Bounds | None = None,
        tls: SidecarTls | None = None,
    ) -> None:
        self._tls = tls
        self.proof = proof
        self.receive = receive
        self.counted = counted
        self.link = link
        self.bounds = bounds or Bounds()
        self.budget = _Budget(self.bounds)
        self.port: int | None = None
        self._servers: list[asyncio.Server] = []
        self._connections: set[_Connection] = set()
        # In order of arrival.
        self._strangers: dict[_Connection, None] = {}
        self._of_peer: dict[str, dict[_Connection, None]] = {}

    async def open(self, sockets: Sequence[socket.socket]) -> None:
        """Start to accept; connections so far waited in the sockets' backlogs."""
        loop = asyncio.get_running_loop()
        for one in sockets:
            if one.family == socket.AF_UNIX:
                server = await loop.create_unix_server(self._connect, sock=one, backlog=_BACKLOG)
            else:
                self.port = one.getsockname()[1]
                server = await loop.create_server(self._connect, sock=one, backlog=_BACKLOG)
            self._servers.append(server)

    def _connect(self) -> asyncio.Protocol:
        connection = _Connection(self)
        return connection if self._tls is None else self._tls.accepted(connection)

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.cut()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()

    def came(self, connection: _Connection, peer: str | None) -> None:
        """Add a connection; at the limit, drop the oldest stranger, since a sidecar authenticates at once."""
        self._connections.add(connection)
        self._strangers[connection] = None
        if len(self._strangers) > self.bounds.strangers:
            next(iter(self._strangers)).cut()
        if peer is not None:
            of_peer = self._of_peer.setdefault(peer, {})
            of_peer[connection] = None
            if len(of_peer) > self.bounds.strangers_of_peer:
                next(iter(of_peer)).cut()

    def known(self, connection: _Connection, peer: str | None) -> None:
        """Mark a connection as authenticated."""
        self._strangers.pop(connection, None)
        if peer is not None and (of_peer := self._of_peer.get(peer)) is not None:
            of_peer.pop(connection, None)
            if not of_peer:
                del self._of_peer[peer]

    def went(self, connection: _Connection, peer: str | None) -> None:
        self.known(connection, peer)
        self._connections.discard(connection)


class _Connection(asyncio.Protocol):
    """One connection. Buffers no body without a credential, and nothing after the response."""

    def __init__(self, listener: WebhookListener) -> None:
        self._listener = listener
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
        self._listener.came(self, self._peer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._release()
        self._listener.went(self, self._peer)
        self._parser = None
        if self._stream is not None:
            self._stream.connection_lost(exc)

    def cut(self) -> None:
        """Close without a response."""
        if self._transport is not None:
            self._transport.abort()
        self._answered = True
        self._release()
        self._listener.known(self, self._peer)

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
            self._answer(*self._listener.receive(instance_id, signature, b"".join(self._body)))
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
        self._is_link = self._url.startswith(_LINK) and self._listener.link is not None
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
        self._proof = self._listener.proof(instance_id, self._header(SENDER_KEY))
        if self._proof is None:
            self._listener.counted(WebhookFault.UNSIGNED)
            return 401
        self._listener.known(self, self._peer)
        if self._is_link:
            return None
        length = self._header(b"content-length")
        if b"transfer-encoding" in self._headers or not length.isdecimal():
            return 411
        if int(length) > _MAX_BODY:
            self._listener.counted(WebhookFault.MALFORMED)
            return 413
        share = max(int(length), _LEAST_SHARE)
        if not self._listener.budget.take(instance_id, share):
            self._listener.counted(WebhookFault.TOO_MANY)
            return 503
        self._share = (instance_id, share)
        return None

    def _instance_id(self) -> InstanceId:
        """Return the sender's instance id, which only its credential proves."""
        return InstanceId(self._header(INSTANCE_KEY))

    def _header(self, name: bytes) -> str:
        return self._headers.get(name, "")

    def _take_over(self) -> None:
        """Have the listener's `link` serve the connection, as streams."""
        transport, link = self._transport, self._listener.link
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
            self._listener.budget.give(*share)
