"""The body of a streamed response."""

from __future__ import annotations

from sandlot._protocol.messages import TransportError
from sandlot._transport_sync.connection import Connection
from sandlot._transport_sync.pool import Pool


class Body:
    """A streamed response. `read` returns the next bytes, and b"" at the end."""

    def __init__(self, pool: Pool, connection: Connection) -> None:
        self._pool = pool
        self._connection = connection
        self._closed = False
        self.status = connection.parser.status
        self.headers = connection.parser.headers

    def read(self, *, timeout: float | None = None) -> bytes:
        """Read the next bytes. Raises TransportError if the connection is lost or silent for `timeout` seconds."""
        parser = self._connection.parser
        if self._closed:
            return b""
        try:
            self._connection.wait(lambda: parser.has_data or parser.done, timeout)
        except TransportError:
            raise
        except BaseException:
            self.close()  # a signal's handler may have raised it between two bytes, and the next ones would follow a gap
            raise
        data = parser.take()
        if not data and parser.done:
            self.close()
        return data

    def read_all(self, *, timeout: float | None = None) -> bytes:
        parts: list[bytes] = []
        while part := self.read(timeout=timeout):
            parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        """Return the connection to the pool, or cut it if the response is incomplete."""
        if not self._closed:
            self._closed = True
            self._pool.release(self._connection, stream=True)

    def abandon(self) -> None:
        """Cut the connection at once, from any thread, whatever that has locked."""
        if not self._closed:
            self._closed = True
            self._pool.abandon(self._connection)
