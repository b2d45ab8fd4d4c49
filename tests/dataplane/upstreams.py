"""Upstreams for the tests: raw asyncio servers that do exactly what a test says, on TCP or a Unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Request:
    """One request as it arrived, before its body was read."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    raw: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> Request:
        """The next head. Raises asyncio.IncompleteReadError at the connection's end."""
        raw = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = raw[:-4].decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = [(line.partition(":")[0].lower(), line.partition(":")[2].strip()) for line in lines]
        return Request(method, target, headers, raw)

    async def pieces(self, request: Request):
        """The body, piece by piece."""
        length = request.header("content-length")
        if length is not None:
            left = int(length)
            while left:
                piece = await self.reader.read(min(left, 65536))
                if not piece:
                    raise asyncio.IncompleteReadError(b"", left)
                left -= len(piece)
                yield piece
        elif request.header("transfer-encoding") == "chunked":
            while size := int((await self.reader.readuntil(b"\r\n")).strip(), 16):
                yield await self.reader.readexactly(size)
                await self.reader.readexactly(2)
            await self.reader.readexactly(2)

    async def body(self, request: Request) -> bytes:
        return b"".join([piece async for piece in self.pieces(request)])

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def answer(self, body: bytes = b"", *, status: str = "200 OK", head: bytes = b"") -> None:
        self.writer.write(
            b"HTTP/1.1 %b\r\ncontent-length: %d\r\n%b\r\n%b" % (status.encode(), len(body), head, body)
        )

    async def ended(self) -> None:
        """Wait until the other side has closed its end."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass

    def abort(self) -> None:
        self.writer.transport.abort()


Behaviour = Callable[[Peer], Awaitable[None]]


@dataclass
class Upstream:
    """`behave` is run for each connection; what it raises fails the test at `close`."""

    behave: Behaviour
    address: str = ""
    connections: int = 0
    requests: list[Request] = field(default_factory=list)
    closed_by_peer: asyncio.Event = field(default_factory=asyncio.Event)
    failures: list[BaseException] = field(default_factory=list)
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self, *, path: Path | None = None, port: int = 0, host: str = "127.0.0.1") -> Upstream:
        if path is not None:
            self._server = await asyncio.start_unix_server(self._accept, path, limit=1 << 20, backlog=1024)
            self.address = f"unix:{path}"
        else:
            self._server = await asyncio.start_server(self._accept, host, port, limit=1 << 20, backlog=1024)
            bound = self._server.sockets[0].getsockname()[1]
            self.address = f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"
        return self

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._server is not None:
            await self._server.wait_closed()
        if self.failures:
            raise self.failures[0]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._run(Peer(reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, peer: Peer) -> None:
        self.connections += 1
        try:
            await self.behave(peer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed_by_peer.set()
        except Exception as error:
            self.failures.append(error)
        finally:
            peer.abort()


def echo(requests: list[Request] | None = None) -> Behaviour:
    """Answers every request with its body, and notes the heads."""

    async def behave(peer: Peer) -> None:
        while True:
            request = await peer.request()
            if requests is not None:
                requests.append(request)
            peer.answer(await peer.body(request))

    return behave
