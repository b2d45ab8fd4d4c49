"""Sends the requests of one client, buffered or streamed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable

from sandlot._protocol.http1 import Origin, chunk, request_head
from sandlot._protocol.messages import Request, Response, TransportError, closed
from sandlot._transport_async.body import AsyncBody
from sandlot._transport_async.connection import Connection
from sandlot._transport_async.pool import Pool


class AsyncTransport:
    """All connections of one client. Belongs to the event loop it is first used in."""

    def __init__(self) -> None:
        self._pools: dict[Origin, Pool] = {}
        self._closed = False

    async def request(self, request: Request) -> Response:
        """Send a buffered request and read its whole response. Raises TransportError."""
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
                    continue  # the server closed the idle connection while the request was in flight
                raise
            except BaseException:
                connection.abort()
                raise
            response = Response(parser.status, parser.headers, parser.take())
            pool.release(connection)
            return response

    async def open(
        self,
        request: Request,
        *,
        source: Callable[[], AsyncIterable[bytes]] | None = None,
        length: int | None = None,
    ) -> AsyncBody:
        """Send a request, its body from `source` if given, and return as soon as the response begins.

        A safe request takes an idle connection if there is one, and never waits for one: it calls `source` again if
        the server has closed that connection.
        """
        pool = self._pool(request.origin)
        while True:
            connection = await pool.acquire(fresh=not request.safe, stream=True)
            reused = connection.used
            try:
                if source is None:
                    connection.begin(self._encode(request), want_all=False)
                else:
                    connection.begin(self._head(request, length=length), want_all=False)
                    await _send(connection, source(), length=length)
                parser = connection.parser
                await connection.wait(lambda: bool(parser.status), request.timeout)  # noqa: B023
            except TransportError as error:
                stale = reused and not connection.parser.started and not error.timed_out and not error.final
                connection.abort()
                if stale and request.safe:
                    continue
                raise
            except BaseException:
                connection.abort()
                raise
            return AsyncBody(pool, connection)

    async def aclose(self) -> None:
        self._closed = True
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()
        # Lets the loop call connection_lost, so that no transport outlives this client.
        await asyncio.sleep(0)

    def _pool(self, origin: Origin) -> Pool:
        pool = self._pools.get(origin)
        if pool is None:
            if self._closed:
                raise closed(sent=False)
            pool = self._pools[origin] = Pool(origin, asyncio.get_running_loop())
        elif pool.loop is not asyncio.get_running_loop():
            raise RuntimeError("this AsyncClient belongs to another event loop: make one client per loop")
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


async def _send(connection: Connection, source: AsyncIterable[bytes], *, length: int | None) -> None:
    """Send a body; stop early once the server has responded."""
    sent = 0
    async for part in source:
        if not part:
            continue
        if connection.error is not None or connection.parser.status:
            connection.unfinished = True
            return
        sent += len(part)
        if length is not None and sent > length:
            raise ValueError("the source gave more bytes than its length")
        await connection.write(part if length is not None else chunk(part))
    if length is not None and sent < length:
        raise ValueError("the source gave fewer bytes than its length")
    if length is None:
        await connection.write(chunk(b""))
