"""HTTP/1.1 over asyncio: kept connections per server, buffered and streamed answers, streamed bodies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import AsyncIterable, Callable
from typing import TYPE_CHECKING, cast

from sandlot._limits import most_connections
from sandlot._protocol.http1 import Origin, ProtocolError, ResponseParser, chunk, request_head
from sandlot._protocol.messages import Request, Response, TransportError, cannot_connect, closed, os_reason
from sandlot._protocol.retry import CONNECT_TIMEOUTS

if TYPE_CHECKING:
    import ssl

TLS_TIMEOUT = 10.0
SOFT_LIMIT = 512  # connections of buffered calls to one server before a call waits for a free one
PATIENCE = 0.1  # seconds it waits, before it opens one more after all
IDLE_LIMIT = 60.0  # seconds a connection is kept unused
DIALS = 128  # connections being opened at the same time
HIGH_WATER = 256 * 1024  # bytes received and not yet read, before the sender is slowed down


class _Connection(asyncio.Protocol):
    """One connection: at most one request at a time, and one task that waits for its answer."""

    def __init__(self, pool: _Pool, loop: asyncio.AbstractEventLoop) -> None:
        self._pool = pool
        self._loop = loop
        self._waiter: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._writing_paused = False
        self._reading_paused = False
        self._buffered = 0
        self._want_all = False
        self._timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None
        self.parser = ResponseParser()
        self.error: TransportError | None = None
        self.used = False
        self.idle_since = 0.0

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            keep_alive(sock)

    def data_received(self, data: bytes) -> None:
        parser = self.parser
        try:
            parser.feed(data)
        except ProtocolError as error:
            self._fail(str(error))
            return
        if self._want_all:
            if parser.done:
                self._wake()
            return
        self._buffered += len(data)
        if self._buffered > HIGH_WATER and not self._reading_paused and self.transport is not None:
            self._reading_paused = True
            self.transport.pause_reading()
        if parser.status:
            self._wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._pool.forget(self)
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        try:
            self.parser.eof()
        except ProtocolError as error:
            self._fail(str(exc or error))
        else:
            self._wake()

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    # the caller's side

    @property
    def alive(self) -> bool:
        return self.transport is not None and not self.transport.is_closing() and self.error is None

    def begin(self, data: bytes, *, want_all: bool) -> None:
        """Starts a request on an unused or finished connection."""
        self.parser = ResponseParser()
        self._want_all = want_all
        self._buffered = 0
        self.used = True
        if self.transport is None:
            raise TransportError("the connection was closed", sent=False)
        self.transport.write(data)

    async def write(self, data: bytes) -> None:
        """Sends a piece of a body, no faster than the peer reads. Does nothing once the answer has begun."""
        if self.transport is None or self.parser.status:
            return
        self.transport.write(data)
        while self._writing_paused and self.alive and not self.parser.status:
            self._writable = self._loop.create_future()
            try:
                await self._writable
            finally:
                self._writable = None

    async def wait(self, ready: Callable[[], bool], timeout: float | None) -> None:
        """Waits until `ready`, at most `timeout` seconds. Raises TransportError."""
        while not ready():
            if self.error is not None:
                raise self.error
            waiter = self._waiter = self._loop.create_future()
            timer = None if timeout is None else self._loop.call_later(timeout, self._time_out, timeout)
            try:
                await waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()

    def taken(self) -> bytes:
        """The body bytes that have arrived; lets the peer send more."""
        data = self.parser.take()
        self._buffered = 0
        if self._reading_paused and self.transport is not None:
            self._reading_paused = False
            self.transport.resume_reading()
        return data

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()
            self.transport = None
        self._pool.forget(self)

    def cut(self, error: TransportError) -> None:
        """Who waits here hears this."""
        if self.error is None:
            self.error = error
        self._wake()
        self.abort()

    def _time_out(self, timeout: float) -> None:
        self.error = TransportError(f"no answer within {timeout:g} s", sent=True, timed_out=True)
        self._wake()

    def _fail(self, message: str) -> None:
        self.cut(TransportError(message, sent=True))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self._writable is not None and self.parser.status and not self._writable.done():
            self._writable.set_result(None)


def keep_alive(sock: socket.socket) -> None:
    """Makes the kernel notice a peer that vanished, in about a minute, also while we only wait."""
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    except OSError:
        pass  # not a TCP socket


class _Pool:
    """The connections to one server."""

    def __init__(self, origin: Origin, loop: asyncio.AbstractEventLoop) -> None:
        self.origin = origin
        self.idle: deque[_Connection] = deque()
        self.open: set[_Connection] = set()
        self.loop = loop
        self.closed = False
        self._pending = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._dials = asyncio.Semaphore(DIALS)
        self._ssl: ssl.SSLContext | None = None

    async def acquire(self, *, fresh: bool) -> _Connection:
        """A connection nobody uses; a `fresh` one has carried no request before."""
        patience = self.loop.time() + PATIENCE
        while True:
            if not fresh:
                connection = self._take_idle()
                if connection is not None:
                    return connection
            if self.closed:
                raise closed(sent=False)
            count = len(self.open) + self._pending
            if count < SOFT_LIMIT or ((fresh or self.loop.time() >= patience) and count < most_connections()):
                return await self._dial()
            if fresh and self.idle:
                self.idle.popleft().abort()  # else nothing would make room: unused ones stay open
                continue
            await self._wait(max(0.001, patience - self.loop.time()) if count < most_connections() else 1.0)

    def release(self, connection: _Connection) -> None:
        if connection.alive and connection.parser.done and connection.parser.reusable:
            connection.idle_since = self.loop.time()
            self.idle.append(connection)
            self._wake_one()
        else:
            connection.abort()

    def forget(self, connection: _Connection) -> None:
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

    def _take_idle(self) -> _Connection | None:
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
        timer = self.loop.call_later(timeout, _set, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif self.idle:
                self._wake_one()  # we may have been woken and cancelled: pass it on

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def _dial(self) -> _Connection:
        origin = self.origin
        self._pending += 1
        try:
            async with self._dials:
                context = self._tls() if origin.secure else None
                sock = await _connected(self.loop, origin)
                try:
                    async with asyncio.timeout(TLS_TIMEOUT):
                        _, connection = await self.loop.create_connection(
                            lambda: _Connection(self, self.loop),
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


async def _connected(loop: asyncio.AbstractEventLoop, origin: Origin) -> socket.socket:
    """Raises OSError."""
    addresses = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    failure: OSError = TimeoutError()
    for timeout in CONNECT_TIMEOUTS:
        for family, kind, number, _, address in addresses:
            sock = socket.socket(family, kind, number)
            sock.setblocking(False)
            try:
                async with asyncio.timeout(timeout):
                    await _opened(loop, sock, address)
                return sock
            except OSError as error:
                sock.close()
                failure = error
            except BaseException:
                sock.close()
                raise
        if not isinstance(failure, TimeoutError):
            raise failure
    raise TimeoutError(f"no connection within {sum(CONNECT_TIMEOUTS):g} s")


_Address = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]


async def _opened(loop: asyncio.AbstractEventLoop, sock: socket.socket, address: _Address) -> None:
    """Raises OSError.

    uvloop's own sock_connect asks its resolver, also for an address: four threads, which may all wait for names that
    something else in this process has asked for.
    """
    with contextlib.suppress(BlockingIOError):
        sock.connect(address)
        return
    writable = loop.create_future()
    try:
        loop.add_writer(sock, _set, writable)
    except NotImplementedError:  # Windows
        await loop.sock_connect(sock, address)
        return
    try:
        await writable
    finally:
        loop.remove_writer(sock)
    error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class AsyncBody:
    """An answer whose body is still arriving. `read` gives the next bytes, and an empty piece at the end."""

    def __init__(self, pool: _Pool, connection: _Connection) -> None:
        self._pool = pool
        self._connection = connection
        self._closed = False
        self.status = connection.parser.status
        self.headers = connection.parser.headers

    async def read(self, *, timeout: float | None = None) -> bytes:
        """Raises TransportError when the connection is lost or silent for `timeout` seconds."""
        connection = self._connection
        parser = connection.parser
        if self._closed:
            return b""
        await connection.wait(lambda: parser.has_data or parser.done, timeout)
        data = connection.taken()
        if not data and parser.done:
            await self.aclose()
        return data

    async def read_all(self, *, timeout: float | None = None) -> bytes:
        parts: list[bytes] = []
        while part := await self.read(timeout=timeout):
            parts.append(part)
        return b"".join(parts)

    async def aclose(self) -> None:
        """Gives the connection back, or cuts it when the answer is not over."""
        if not self._closed:
            self._closed = True
            self._pool.release(self._connection)

    def abandon(self) -> None:
        """The same at once, from any thread, and when the loop may be gone."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(RuntimeError):
                self._pool.loop.call_soon_threadsafe(self._pool.release, self._connection)


class AsyncTransport:
    """All connections of one client. Belongs to the event loop it is first used in."""

    def __init__(self) -> None:
        self._pools: dict[Origin, _Pool] = {}
        self._closed = False

    async def request(self, request: Request) -> Response:
        """Sends a buffered request and reads its whole answer. Raises TransportError."""
        pool = self._pool(request.origin)
        data = self._encode(request)
        while True:
            connection = await pool.acquire(fresh=not request.safe)
            reused = connection.used
            try:
                connection.begin(data, want_all=True)
                parser = connection.parser
                await connection.wait(lambda: parser.done, request.timeout)  # noqa: B023
            except TransportError as error:
                stale = reused and not connection.parser.started and not error.timed_out and not error.final
                connection.abort()
                if stale and request.safe:
                    continue  # the server closed the kept connection while the request was on its way
                raise
            except BaseException:
                connection.abort()
                raise
            response = Response(parser.status, parser.headers, parser.take())
            pool.release(connection)
            return response

    async def open(
        self, request: Request, *, source: AsyncIterable[bytes] | None = None, length: int | None = None
    ) -> AsyncBody:
        """Sends a request, its body from `source` if given, and returns as soon as the answer begins.

        The connection is a fresh one: a stream must never wait for a call, nor a call for a stream.
        """
        pool = self._pool(request.origin)
        connection = await pool.acquire(fresh=True)
        try:
            parser_ready = connection
            if source is None:
                connection.begin(self._encode(request), want_all=False)
            else:
                connection.begin(self._head(request, length=length), want_all=False)
                await _send(connection, source, length=length)
            await connection.wait(lambda: bool(parser_ready.parser.status), request.timeout)
        except BaseException:
            connection.abort()
            raise
        return AsyncBody(pool, connection)

    async def aclose(self) -> None:
        self._closed = True
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()
        await asyncio.sleep(0)  # lets the loop call connection_lost, so that no transport outlives us

    def _pool(self, origin: Origin) -> _Pool:
        pool = self._pools.get(origin)
        if pool is None:
            if self._closed:
                raise closed(sent=False)
            pool = self._pools[origin] = _Pool(origin, asyncio.get_running_loop())
        elif pool.loop is not asyncio.get_running_loop():
            raise RuntimeError("this AsyncClient is another event loop's: make one in each loop that calls")
        return pool

    def _encode(self, request: Request) -> bytes:
        return self._head(request, length=len(request.body)) + request.body

    def _head(self, request: Request, *, length: int | None) -> bytes:
        return request_head(
            method=request.method,
            target=request.target,
            authority=request.origin.authority,
            headers=request.headers,
            length=length,
        )


async def _send(connection: _Connection, source: AsyncIterable[bytes], *, length: int | None) -> None:
    """Sends a body; stops early when the server has already answered."""
    sent = 0
    async for part in source:
        if not part:
            continue
        if connection.error is not None or connection.parser.status:
            return
        sent += len(part)
        if length is not None and sent > length:
            raise ValueError("the source gave more bytes than its length")
        await connection.write(part if length is not None else chunk(part))
    if length is not None and sent < length:
        raise ValueError("the source gave fewer bytes than its length")
    if length is None:
        await connection.write(chunk(b""))


def now() -> float:
    """The clock of retry decisions, in seconds."""
    return time.monotonic()
