"""The body of a streamed response."""

from __future__ import annotations

import contextlib
from functools import partial

from sandlot._transport_async.connection import Connection
from sandlot._transport_async.pool import Pool


class AsyncBody:
    """A streamed response. `read` returns the next bytes, and b"" at the end."""

    def __init__(self, pool: Pool, connection: Connection) -> None:
        self._pool = pool
        self._connection = connection
        self._closed = False
        self.status = connection.parser.status
        self.headers = connection.parser.headers

    async def read(self, *, timeout: float | None = None) -> bytes:
        """Read the next bytes. Raises TransportError if the connection is lost or silent for `timeout` seconds."""
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
        """Return the connection to the pool, or cut it if the response is incomplete."""
        if not self._closed:
            self._closed = True
            self._pool.release(self._connection, stream=True)

    def abandon(self) -> None:
        """Cut the connection at once, from any thread, even if the loop is closed."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(RuntimeError):
                self._pool.loop.call_soon_threadsafe(
                    partial(self._pool.release, self._connection, stream=True)
                )
