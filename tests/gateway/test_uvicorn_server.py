"""The server ends in two steps, whatever its WebSockets are in the middle of."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from sandlot_gateway.uvicorn_server import Server, WebSocket

from tests.waiting import SECONDS, until

PIECE = b"x" * (1 << 20)
CLOSE = bytes([0x88, 0x82, 0, 0, 0, 0, 0x03, 0xE8])  # a client's frame, status 1000, masked with zeros


class App:
    """Answers HTTP once `answer` is set, and sends to a WebSocket for as long as it is taken."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()
        self.sent = 0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
            while True:
                await send({"type": "websocket.send", "bytes": PIECE})
                self.sent += 1
                await asyncio.sleep(0)  # a closed connection takes everything at once
        self.asked.set()
        await self.answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"done"})


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[tuple[Server, asyncio.Task[None], int]]:
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, loop="none", ws=WebSocket, ws_per_message_deflate=False, lifespan="off")
    server = Server(config)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield server, task, listening.getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await asyncio.gather(task, return_exceptions=True)


async def opened(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A WebSocket whose client reads nothing but the handshake."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 10)
    key = base64.b64encode(b"k" * 16).decode()
    writer.write(
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key.encode() + b"\r\n\r\n"
    )
    assert b" 101 " in await reader.readuntil(b"\r\n")
    return reader, writer


async def is_full(app: App) -> None:
    """Nothing more is taken: neither the client nor the kernel's buffers have room."""
    sent = -1
    while sent != app.sent or not sent:
        sent = app.sent
        await asyncio.sleep(0.2)


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed by the client"])
async def test_a_request_is_answered_beside_a_websocket_whose_client_does_not_read(closed: bool) -> None:
    app = App()
    async with serving(app) as (server, task, port):
        _, stuck = await opened(port)
        await is_full(app)
        if closed:
            stuck.write(CLOSE)
            await stuck.drain()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await app.asked.wait()
        server.drain_connections()
        server.drain_connections()
        server.close(by=asyncio.get_running_loop().time() + SECONDS)
        await until(lambda: not server.servers[0].is_serving())
        app.answer.set()
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        stuck.transport.abort()
        writer.close()
        await task
