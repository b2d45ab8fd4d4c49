"""The connection pool of one client and server: reuses, opens and expires connections."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from sandlot._limits import most_connections
from sandlot._protocol.http1 import Origin
from sandlot._protocol.messages import TransportError, cannot_connect, closed, os_reason
from sandlot._transport_sync.connection import Connection
from sandlot._transport_sync.sockets import CONNECT_TIMEOUT, connect, keep_alive

if TYPE_CHECKING:
    import ssl

IDLE_LIMIT = 60.0  # seconds before an idle connection is closed
LOOK = 1.0  # seconds between two looks for abandoned connections while all others are in use
MOST_IDLE = 64  # connections that wait, beyond which that of a finished stream is closed


class Pool:
    """Connections to one server."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.idle: deque[Connection] = deque()
        self.open: set[Connection] = set()
        self.closed = False
        self._abandoned: deque[Connection] = deque()
        self._lock = threading.Lock()
        self._most = most_connections()
        self._slots = threading.BoundedSemaphore(self._most)
        self._ssl: ssl.SSLContext | None = None

    def acquire(self, *, fresh: bool, within: float | None = None) -> Connection:
        """Return an unused connection; a `fresh` one has carried no request before. A new one opens within seconds."""
        self._discard_abandoned()
        if not fresh:
            connection = self._take_idle()
            if connection is not None:
                return connection
        return self._dial(within)

    def release(self, connection: Connection, *, stream: bool = False) -> None:
        """Keep the connection for a later request, unless that of a `stream` is one too many.

        One with an unfinished body is cut: the server would read the next request as the rest of it.
        """
        parser = connection.parser
        if parser.done and parser.reusable and not connection.lost and not connection.unfinished:
            connection.idle_since = time.monotonic()
            with self._lock:
                if not (stream and len(self.idle) >= MOST_IDLE):
                    self.idle.append(connection)
                    return
        self.discard(connection)

    def discard(self, connection: Connection) -> None:
        with self._lock:
            known = connection in self.open
            self.open.discard(connection)
        connection.close()
        if known:
            self._slots.release()

    def abandon(self, connection: Connection) -> None:
        """Cut a connection that has no reader any more; garbage collection may do this in a thread with the lock."""
        connection.close()
        self._abandoned.append(connection)

    def forget(self) -> None:
        """Leave all connections to the parent of this process, which was forked."""
        self._lock = threading.Lock()  # a thread of the parent may have had it
        self._slots = threading.BoundedSemaphore(self._most)
        self._abandoned = deque()
        connections, self.open = self.open, set()
        self.idle = deque()
        for connection in connections:
            connection.lost = True
            connection.close()

    def close(self) -> None:
        with self._lock:
            self.closed = True
            connections = list(self.open)
            self.idle.clear()
        for connection in connections:
            self.discard(connection)

    def _discard_abandoned(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self.discard(self._abandoned.popleft())

    def _take_idle(self) -> Connection | None:
        while True:
            now = time.monotonic()
            with self._lock:
                if not self.idle:
                    return None
                old = now - self.idle[0].idle_since > IDLE_LIMIT
                connection = self.idle.popleft() if old else self.idle.pop()
            if not old and not connection.stale():
                return connection
            self.discard(connection)

    def _drop_idle(self) -> bool:
        with self._lock:
            connection = self.idle.popleft() if self.idle else None
        if connection is not None:
            self.discard(connection)
        return connection is not None

    def _dial(self, within: float | None) -> Connection:
        origin = self.origin
        if self.closed:
            raise closed(sent=False)
        give_up = time.monotonic() + CONNECT_TIMEOUT
        while not self._slots.acquire(blocking=False):
            # Idle connections count towards the limit and stay open.
            if not self._drop_idle():
                if self._slots.acquire(timeout=LOOK):
                    break
                over = time.monotonic() >= give_up
                self._discard_abandoned()
                if over:
                    if self._slots.acquire(blocking=False):
                        break
                    raise TransportError("too many open connections in this process", sent=False)
        try:
            sock = connect(origin, within=within)
            again: tuple[type[OSError], ...] = (BlockingIOError,)
            try:
                keep_alive(sock)
                if origin.secure:
                    import ssl

                    sock = self._tls().wrap_socket(sock, server_hostname=origin.host)
                    again = (BlockingIOError, ssl.SSLWantReadError)
            except BaseException:
                sock.close()
                raise
        except OSError as error:
            self._slots.release()
            raise TransportError(cannot_connect(origin, os_reason(error)), sent=False) from error
        except BaseException:
            self._slots.release()
            raise
        connection = Connection(sock, again=again)
        with self._lock:
            self.open.add(connection)
        return connection

    def _tls(self) -> ssl.SSLContext:
        with self._lock:
            if self._ssl is None:
                import ssl

                self._ssl = ssl.create_default_context()
            return self._ssl
