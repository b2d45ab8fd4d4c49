"""Carries a WebSocket through an exposure: shakes hands with the app in the sandbox, then passes messages on."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os

from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, OPEN, Protocol

from .answers import Receive, Refusal, Scope, Send, unreachable
from .conn import Connection
from .errors import DialError, PoolError, UpstreamError
from .expose import Exposure
from .expose_http import forwarded_lines
from .pool import HttpPool
from .request import Parsed
from .routes import Route
from .sockets import GOING_AWAY, reason
from .tunnel import Refused, open_tunnel

MAX_MESSAGE = 16 << 20  # bytes of one message from the app
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
# Of one hop: the gateway shakes hands with the app for itself, without extensions (no compression inside).
_OURS = (b"sec-websocket-key", b"sec-websocket-version", b"sec-websocket-extensions", b"x-forwarded-")


class ExposedSocket:
    """One WebSocket; `begin` connects to the app, `run` carries messages until either side closes."""

    def __init__(self, *, pool: HttpPool, route: Route, exposure: Exposure) -> None:
        self._pool = pool
        self._route = route
        self._exposure = exposure
        self._connection: Connection | None = None
        self._protocol = Protocol(CLIENT, state=OPEN, max_size=MAX_MESSAGE)
        self._subprotocol: str | None = None

    async def begin(self, scope: Scope, *, request: Parsed, rest: bytes, authorization: bytes) -> None:
        """Raises Refusal: the app's own status when it does not want a WebSocket there."""
        port = self._exposure.port
        key = base64.b64encode(os.urandom(16))
        query: bytes = scope["query_string"]
        lines = [
            b"GET /%b HTTP/1.1\r\nhost: localhost:%d\r\n"
            % (b"%b?%b" % (rest, query) if query else rest, port),
            b"connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n",
            b"sec-websocket-key: %b\r\n" % key,
            *[line for line in request.lines if not line.startswith(_OURS)],
            *forwarded_lines(scope, prefix=self._exposure.path.rstrip("/").encode()),
        ]
        if authorization:
            lines.append(b"authorization: %b\r\n" % authorization)
        try:
            connection = self._connection = await open_tunnel(pool=self._pool, route=self._route, port=port)
            connection.reset_to_http()
            connection.begin(b"".join([*lines, b"\r\n"]))
            response = await connection.head()
        except Refused as error:
            message = f"nothing listens on port {port} of the sandbox"
            raise Refusal(502, "refused", message, may_have_run=False) from error
        except DialError as error:
            raise unreachable(error) from error
        except UpstreamError as error:
            raise Refusal(502, "app_failed", str(error), may_have_run=True) from error
        headers = dict(response.headers)
        if not response.upgraded:
            status = response.status if response.status >= 400 else 502
            raise Refusal(status, "no_websocket", f"the app answered {response.status}")
        if headers.get(b"sec-websocket-accept") != base64.b64encode(hashlib.sha1(key + _GUID).digest()):
            raise Refusal(502, "no_websocket", "the app's answer is no WebSocket handshake")
        subprotocol = headers.get(b"sec-websocket-protocol")
        self._subprotocol = subprotocol.decode("latin-1") if subprotocol else None

    async def run(self, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.accept", "subprotocol": self._subprotocol})
        loop = asyncio.get_running_loop()
        down = loop.create_task(self._down(send))
        tasks = {down, loop.create_task(self._up(receive))}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                if isinstance(error, PoolError):
                    await send({"type": "websocket.close", "code": GOING_AWAY, "reason": reason(str(error))})
                    return
                raise error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _up(self, receive: Receive) -> None:
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                code = message.get("code") or 1005
                if self._protocol.state is OPEN:
                    # 1005 and 1006 say "no code" and "no close" on this side and may not be sent.
                    sendable = None if code in (1005, 1006) else code
                    self._protocol.send_close(sendable, message.get("reason") or "")
                    await self._flush()
                return
            if message["type"] == "websocket.receive" and self._protocol.state is OPEN:
                if message.get("bytes") is not None:
                    self._protocol.send_binary(message["bytes"])
                else:
                    self._protocol.send_text(message["text"].encode())
                await self._flush()

    async def _down(self, send: Send) -> None:
        assert self._connection is not None
        fragments: list[bytes] = []
        text = False
        while data := await self._connection.read():
            self._protocol.receive_data(data)
            await self._flush()
            for frame in self._protocol.events_received():
                if not isinstance(frame, Frame) or frame.opcode in (Opcode.PING, Opcode.PONG):
                    continue
                if frame.opcode is Opcode.CLOSE:
                    close = self._protocol.close_rcvd
                    code, why = (close.code, close.reason) if close is not None else (1005, "")
                    sendable = code not in (1005, 1006)
                    await send({"type": "websocket.close", "code": code if sendable else 1000, "reason": why})
                    return
                if frame.opcode is not Opcode.CONT:
                    text = frame.opcode is Opcode.TEXT
                fragments.append(bytes(frame.data))
                if frame.fin:
                    whole = b"".join(fragments)
                    fragments.clear()
                    if text:
                        await send({"type": "websocket.send", "text": whole.decode("utf-8", "replace")})
                    else:
                        await send({"type": "websocket.send", "bytes": whole})
            if self._protocol.parser_exc is not None:
                raise UpstreamError(f"the app broke the WebSocket protocol: {self._protocol.parser_exc}")
        raise UpstreamError("the app closed the connection")

    async def _flush(self) -> None:
        assert self._connection is not None
        data = b"".join(self._protocol.data_to_send())
        if data:
            self._connection.write(data)
            await self._connection.drain()
