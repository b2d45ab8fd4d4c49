"""The connection pool of one client and server: reuses, opens and expires connections."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from sandlot._limits import most_connections
from sandlot._protocol.http1 import Origin
from sandlot._protocol.messages import TransportError, cannot_connect, closed, os_reason
from sandlot._tasks_async import settle
from sandlot._transport_async.connection import Connection
from sandlot._transport_async.sockets import connect

if TYPE_CHECKING:
    import ssl

TLS_TIMEOUT = 10.0
SOFT_LIMIT = 512  # connections of buffered calls to one server before a call waits for an idle one
PATIENCE = 0.1  # seconds a call waits before it opens another connection
IDLE_LIMIT = 60.0  # seconds before an idle connection is closed
MOST_IDLE = 64  # connections that wait, beyond which that of a finished stream is closed
DIALS = 128  # concurrent connection attempts


class Pool:
    """Connections to one server."""

    def __init__(self, origin: Origin, loop: asyncio.AbstractEventLoop) -> None:
        self.origin = origin
        self.idle: deque[Connection] = deque()
        self.open: set[Connection] = set()
        self.loop = loop
        self.closed = False
        self._pending = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._dials = asyncio.Semaphore(DIALS)
        self._ssl: ssl.SSLContext | None = None

    async def acquire(self, *, fresh: bool, stream: bool = False) -> Connection:
        """Return an unused connection; a `fresh` one has carried no request before, a `stream` waits for none."""
        patience = self.loop.time() + PATIENCE
        while True:
            if not fresh:
                connection = self._take_idle()
                if connection is not None:
                    return connection
            if self.closed:
                raise closed(sent=False)
            count = len(self.open) + self._pending
            hurried = fresh or stream or self.loop.time() >= patience
            if count < SOFT_LIMIT or (hurried and count < most_connections()):
                return await self._dial()
            if fresh and self.idle:
                self.idle.popleft().abort()  # idle connections count towards the limit and stay open
                continue
            await self._wait(max(0.001, patience - self.loop.time()) if count < most_connections() else 1.0)

    def release(self, connection: Connection, *, stream: bool = False) -> None:
        """Keep the connection for a later request, unless that of a `stream` is one too many.

        One with an unfinished body is cut: the server would read the next request as the rest of it. Those of buffered calls are all kept: a server may answer thousands at once, and their callers go on at once.
        """
        parser = connection.parser
        reusable = connection.alive and parser.done and parser.reusable and not connection.unfinished
        if reusable and not (stream and len(self.idle) >= MOST_IDLE):
            connection.idle_since = self.loop.time()
            self.idle.append(connection)
            self._wake_one()
        else:
            connection.abort()

    def forget(self, connection: Connection) -> None:
        if connection in self.open:
            self.open.discard(connection)
            self._wake_one()

    def close(self) -> None:
        self.closed = True
        for connection in list(self.open):
            connection.cut(closed(sent=True))
        self.idle.clear()
        while self._waiters:
            self._wake_one()

    def _take_idle(self) -> Connection | None:
        now = self.loop.time()
        while self.idle and (not self.idle[0].alive or now - self.idle[0].idle_since > IDLE_LIMIT):
            self.idle.popleft().abort()
        while self.idle:
            connection = self.idle.pop()
            if connection.alive:
                return connection
        return None

    async def _wait(self, timeout: float) -> None:
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters.append(waiter)
        timer = self.loop.call_later(timeout, settle, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif self.idle:
                self._wake_one()  # this waiter may have been woken and cancelled: wake the next

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def _dial(self) -> Connection:
        origin = self.origin
        self._pending += 1
        try:
            async with self._dials:
                context = self._tls() if origin.secure else None
                sock = await connect(self.loop, origin)
                try:
                    async with asyncio.timeout(TLS_TIMEOUT):
                        _, connection = await self.loop.create_connection(
                            lambda: Connection(self.loop, forget=self.forget),
                            ssl=context,
                            sock=sock,
                            server_hostname=origin.host if origin.secure else None,
                        )
                except BaseException:
                    sock.close()
                    raise
        except (OSError, TimeoutError) as error:
            reason = os_reason(error) if str(error) else "the server did not accept the connection"
            raise TransportError(cannot_connect(origin, reason), sent=False) from error
        finally:
            self._pending -= 1
        if self.closed:
            connection.abort()
            raise closed(sent=False)
        self.open.add(connection)
        return connection

    def _tls(self) -> ssl.SSLContext:
        if self._ssl is None:
            import ssl

            self._ssl = ssl.create_default_context()
        return self._ssl
