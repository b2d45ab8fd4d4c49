"""A real uvicorn around the data plane, with a directory and keys that a test can write to."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from sandlot_contract.statuses import Status
from sandlot_gateway.data.breaker import Limits
from sandlot_gateway.data.expose import Exposures
from sandlot_gateway.data.pool import HttpPool, PoolSettings
from sandlot_gateway.data.routes import Route
from sandlot_gateway.data.server import protocol
from sandlot_gateway.data_plane import DataPlane
from sandlot_gateway.metrics import Metrics
from sandlot_gateway.tokens import Tokens
from sandlot_gateway.tracing.tracing import Tracing


class Directory:
    """Routes in a dict; a PENDING one becomes another when a test calls `become`."""

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        self.touches: list[str] = []
        self.coming: set[str] = set()  # another gateway may have made them
        self.waited = asyncio.Event()  # somebody waits for a PENDING sandbox
        self._changed = asyncio.Event()

    def become(self, route: Route) -> None:
        self.routes[route.sandbox_id] = route
        self._changed.set()
        self._changed = asyncio.Event()

    def find(self, sandbox_id: str) -> Route | None:
        return self.routes.get(sandbox_id)

    async def wait_ready(self, sandbox_id: str, timeout: float) -> Route | None:
        try:
            async with asyncio.timeout(timeout):
                self.waited.set()
                await self._changed.wait()
        except TimeoutError:
            pass
        return self.routes.get(sandbox_id)

    def may_come(self, sandbox_id: str) -> bool:
        return sandbox_id in self.coming

    def touched(self, sandbox_id: str) -> None:
        self.touches.append(sandbox_id)


class Keys:
    def __init__(self) -> None:
        self.keys = {"key-of-acme": "acme", "key-of-other": "other"}

    def tenant(self, key: str) -> str | None:
        return self.keys.get(key)


class Gateway:
    """`sb-1` of tenant `acme` is at the address given to `serve`."""

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        store: Path | None = None,
        pool: PoolSettings | None = None,
        keep_alive: int = 60,
        tracing: Tracing | None = None,
        listen_host: str = "127.0.0.1",
    ) -> None:
        """`keep_alive`: seconds; a client's connection without a request is closed after them."""
        self.directory = Directory()
        self.keys = Keys()
        self.tokens = Tokens(b"a master key of the tests")
        self.metrics = Metrics()
        self.pool = HttpPool(settings=pool, observer=self.metrics)
        self.exposures = Exposures(
            routes=self.directory, pool=self.pool, listen_host=listen_host, store=store, observer=self.metrics
        )
        self.plane = DataPlane(
            routes=self.directory,
            tokens=self.tokens,
            api_keys=self.keys,
            pool=self.pool,
            metrics=self.metrics,
            exposures=self.exposures,
            limits=limits,
            tracing=tracing,
        )
        self.port = 0
        self._keep_alive = keep_alive
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    def route(self, address: str, *, sandbox_id: str = "sb-1", status: str = "RUNNING", **fields) -> Route:
        values = {"tenant": "acme", "token": "sst_of_the_sidecar", **fields}
        route = Route(sandbox_id=sandbox_id, address=address, status=Status(status), **values)
        self.directory.become(route)
        return route

    @property
    def token(self) -> str:
        return self.tokens.client("sb-1", "acme", int(time.time()) + 3600)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> Gateway:
        config = uvicorn.Config(
            self.plane,
            loop="none",
            http=protocol(is_known=lambda scope: True, has_room=self.pool.has_room),
            proxy_headers=False,
            ws="websockets-sansio",
            access_log=False,
            log_level="warning",
            lifespan="off",
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=1,
            timeout_keep_alive=self._keep_alive,
        )
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        self.port = listener.getsockname()[1]
        self._server = _Server(config)
        self._serving = asyncio.get_running_loop().create_task(self._server.serve(sockets=[listener]))
        await self._server.ready.wait()
        return self

    async def close(self) -> None:
        await self.exposures.close()
        await self.plane.drain(0.0)
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
        await self.pool.close()


class _Server(uvicorn.Server):
    """uvicorn that says when it is up and leaves the signals to pytest."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Client:
    """A client that can see and send single bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, gateway: Gateway) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", gateway.port, limit=1 << 20))

    def send(
        self,
        method: str,
        target: str,
        *,
        body: bytes | None = b"",
        headers: tuple[str, ...] = (),
        token: str = "",
    ) -> None:
        """A request; body None leaves its framing to `headers`."""
        lines = [f"{method} {target} HTTP/1.1", "host: gateway.test", *headers]
        if token:
            lines.append(f"authorization: Bearer {token}")
        if body is not None:
            lines.append(f"content-length: {len(body)}")
        self.writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b""))

    async def head(self) -> tuple[int, dict[str, str]]:
        raw = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = raw[:-4].decode("latin-1").split("\r\n")
        headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in lines}
        return int(first.split(" ")[1]), headers

    async def pieces(self, headers: dict[str, str]):
        """The body; raises asyncio.IncompleteReadError when it is cut."""
        if "content-length" in headers:
            left = int(headers["content-length"])
            while left:
                piece = await self.reader.read(min(left, 65536))
                if not piece:
                    raise asyncio.IncompleteReadError(b"", left)
                left -= len(piece)
                yield piece
            return
        while size := int((await self.reader.readuntil(b"\r\n")).strip(), 16):
            yield await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        status, headers = await self.head()
        return status, headers, b"".join([piece async for piece in self.pieces(headers)])

    async def close(self) -> None:
        self.writer.transport.abort()
        try:
            await self.writer.wait_closed()
        except OSError:
            pass
