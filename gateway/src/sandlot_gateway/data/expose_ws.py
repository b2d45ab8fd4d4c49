"""Relays a WebSocket through an exposure: performs the handshake with the app, then relays messages."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass

from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, OPEN, Event, Protocol

from .answers import ErrorCode, Receive, Refusal, Send
from .conn import Connection
from .errors import PoolError, UpstreamError
from .expose_http import refusal
from .pool import HttpPool
from .routes import Route
from .sockets import GOING_AWAY, reason
from .tunnel import open_http

MAX_MESSAGE = 16 << 20  # bytes of one message from the app
_MAX_FRAMES = 4096  # of one message
_SLICE = 4096  # bytes parsed per loop iteration: a frame may be two bytes
_HANDSHAKE = 30.0  # seconds until the app must have answered
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
# Hop-by-hop: the gateway makes its own handshake with the app, without extensions (no compression).
_OURS = (b"sec-websocket-key", b"sec-websocket-version", b"sec-websocket-extensions")


@dataclass(frozen=True, slots=True)
class Handshake:
    """What an app gets of a client's request: `target` is its path and query, `lines` its headers with line ends."""

    port: int
    target: bytes
    host: bytes
    lines: list[bytes]


class ExposedSocket:
    """One WebSocket; `begin` connects to the app, `run` carries messages until either side closes."""

    def __init__(self, *, pool: HttpPool, route: Route, asked: Handshake) -> None:
        self._pool = pool
        self._route = route
        self._asked = asked
        self._connection: Connection | None = None
        self._protocol = Protocol(CLIENT, state=OPEN, max_size=MAX_MESSAGE)
        self._subprotocol: str | None = None

    async def begin(self) -> None:
        """Connect to the app. Raises Refusal, with the app's own status if it rejects the WebSocket."""
        asked = self._asked
        port = asked.port
        key = base64.b64encode(os.urandom(16))
        lines = [
            b"GET %b HTTP/1.1\r\nhost: %b\r\n" % (asked.target, asked.host),
            b"connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n",
            b"sec-websocket-key: %b\r\n" % key,
            *[line for line in asked.lines if not line.startswith(_OURS)],
        ]
        try:
            connection = self._connection = await open_http(pool=self._pool, route=self._route, port=port)
            connection.begin(b"".join([*lines, b"\r\n"]), upgrade=True)
            async with asyncio.timeout(_HANDSHAKE):
                response = await connection.head()
        except TimeoutError as error:
            message = f"the app on port {port} did not answer within {_HANDSHAKE:g} s"
            raise Refusal(504, ErrorCode.APP_FAILED, message, may_have_run=True) from error
        except PoolError as error:
            raise refusal(error, port=port) from error
        headers = dict(response.headers)
        if not response.upgraded:
            status = response.status if response.status >= 400 else 502
            raise Refusal(
                status, ErrorCode.NO_WEBSOCKET, f"the app answered {response.status} instead of 101"
            )
        if headers.get(b"sec-websocket-accept") != base64.b64encode(hashlib.sha1(key + _GUID).digest()):
            raise Refusal(
                502, ErrorCode.NO_WEBSOCKET, "the app's response is not a valid WebSocket handshake"
            )
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
                    # 1005 (no code) and 1006 (no close frame) are reserved and may not be sent.
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
        async for frames in self._frames():
            for frame in frames:
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
                if frame.data:
                    fragments.append(bytes(frame.data))
                if len(fragments) > _MAX_FRAMES:
                    raise UpstreamError(f"a message of the app has more than {_MAX_FRAMES} frames")
                if frame.fin:
                    whole = b"".join(fragments)
                    fragments.clear()
                    if text:
                        await send({"type": "websocket.send", "text": whole.decode("utf-8", "replace")})
                    else:
                        await send({"type": "websocket.send", "bytes": whole})
        raise UpstreamError("the app closed the connection")

    async def _frames(self) -> AsyncIterator[list[Event]]:
        """Yield frames as they arrive, a few at a time so that other connections get their share of the loop."""
        assert self._connection is not None
        while True:
            try:
                data = await self._connection.read()
            except UpstreamError as error:
                raise UpstreamError("the connection to the app was lost") from error
            if not data:
                return
            for at in range(0, len(data), _SLICE):
                self._protocol.receive_data(data[at : at + _SLICE])
                await self._flush()
                yield self._protocol.events_received()
                if self._protocol.parser_exc is not None:
                    raise UpstreamError(
                        f"the app violated the WebSocket protocol: {self._protocol.parser_exc}"
                    )
                if len(data) > _SLICE:
                    await asyncio.sleep(0)

    async def _flush(self) -> None:
        assert self._connection is not None
        data = b"".join(self._protocol.data_to_send())
        if data:
            self._connection.write(data)
            await self._connection.drain()
