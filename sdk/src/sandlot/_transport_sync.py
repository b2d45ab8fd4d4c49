"""HTTP/1.1 over blocking sockets: the same interface as the asyncio transport, for any number of threads."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sandlot._cancel_sync import CancellableCall
from sandlot._limits import most_connections
from sandlot._protocol.http1 import Origin, ProtocolError, ResponseParser, chunk, request_head
from sandlot._protocol.messages import Request, Response, TransportError, cannot_connect, closed, os_reason
from sandlot._protocol.retry import CONNECT_TIMEOUTS

if TYPE_CHECKING:
    import ssl

CONNECT_TIMEOUT = 10.0
IDLE_LIMIT = 60.0  # seconds a connection is kept unused
RECEIVE = 256 * 1024


class _Connection:
    """One connection: used by one thread at a time."""

    def __init__(self, sock: socket.socket, *, again: tuple[type[OSError], ...]) -> None:
        self.sock = sock
        self._again = again  # what a read that would block raises
        self.parser = ResponseParser()
        self.used = False
        self.idle_since = 0.0
        self.lost = False

    def begin(self, data: bytes, *, timeout: float | None) -> None:
        self.parser = ResponseParser()
        self.used = True
        self.send(data, timeout=timeout)

    def send(self, data: bytes, *, timeout: float | None) -> None:
        """Sends bytes. A peer that has closed its side may have answered already: that is seen by the next wait."""
        with CancellableCall(self.cut):
            try:
                self.sock.settimeout(timeout)
                self.sock.sendall(data)
            except TimeoutError as error:
                raise TransportError(
                    f"could not send within {timeout:g} s", sent=True, timed_out=True
                ) from error
            except OSError:
                self.lost = True

    def answered(self) -> bool:
        """Whether the server has begun to answer, without waiting."""
        if not self.lost and not self.parser.status:
            try:
                data = self._peek()
                if data == b"":
                    self.lost = True
                elif data:
                    self.parser.feed(data)
            except (OSError, ProtocolError):
                self.lost = True
        return self.lost or bool(self.parser.status)

    def stale(self) -> bool:
        """Whether the server has closed this idle connection, or sent something nobody asked for."""
        try:
            return self._peek() is not None
        except OSError:
            return True

    def _peek(self) -> bytes | None:
        """What can be read without waiting; None for nothing yet."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        if not poll.poll(0):
            return None
        self.sock.settimeout(0)
        try:
            return self.sock.recv(RECEIVE)
        except self._again:
            return None

    def wait(self, ready: Callable[[], bool], timeout: float | None) -> None:
        """Reads until `ready`, at most `timeout` seconds. Raises TransportError."""
        with CancellableCall(self.cut):
            self._read_until(ready, timeout)

    def _read_until(self, ready: Callable[[], bool], timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not ready():
            try:
                self.sock.settimeout(None if deadline is None else max(0.001, deadline - time.monotonic()))
                data = self.sock.recv(RECEIVE)
            except TimeoutError as error:
                raise TransportError(f"no answer within {timeout:g} s", sent=True, timed_out=True) from error
            except OSError as error:
                raise TransportError(os_reason(error), sent=True) from error
            try:
                if data:
                    self.parser.feed(data)
                else:
                    self.parser.eof()
            except ProtocolError as error:
                raise TransportError(str(error), sent=True) from error

    def cut(self) -> None:
        """Makes the thread that waits here return, from another one."""
        self.lost = True
        # The plain socket's: that of a TLS socket would have the waiting thread go on without TLS.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)

    def close(self) -> None:
        self.sock.close()


class _Pool:
    """The connections to one server."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.idle: deque[_Connection] = deque()
        self.open: set[_Connection] = set()
        self.closed = False
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(most_connections())
        self._ssl: ssl.SSLContext | None = None

    def acquire(self, *, fresh: bool) -> _Connection:
        """A connection nobody uses; a `fresh` one has carried no request before."""
        if not fresh:
            connection = self._take_idle()
            if connection is not None:
                return connection
        return self._dial()

    def release(self, connection: _Connection) -> None:
        if connection.parser.done and connection.parser.reusable and not connection.lost:
            connection.idle_since = time.monotonic()
            with self._lock:
                self.idle.append(connection)
        else:
            self.discard(connection)

    def discard(self, connection: _Connection) -> None:
        with self._lock:
            known = connection in self.open
            self.open.discard(connection)
        connection.close()
        if known:
            self._slots.release()

    def close(self) -> None:
        with self._lock:
            self.closed = True
            connections = list(self.open)
            self.idle.clear()
        for connection in connections:
            self.discard(connection)

    def _take_idle(self) -> _Connection | None:
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

    def _dial(self) -> _Connection:
        origin = self.origin
        if self.closed:
            raise closed(sent=False)
        while not self._slots.acquire(blocking=False):
            # Else nothing would make room: unused ones stay open.
            if not self._drop_idle():
                if self._slots.acquire(timeout=CONNECT_TIMEOUT):
                    break
                raise TransportError("too many open connections in this process", sent=False)
        try:
            sock = _connected(origin)
            again: tuple[type[OSError], ...] = (BlockingIOError,)
            try:
                _keep_alive(sock)
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
        connection = _Connection(sock, again=again)
        with self._lock:
            self.open.add(connection)
        return connection

    def _tls(self) -> ssl.SSLContext:
        with self._lock:
            if self._ssl is None:
                import ssl

                self._ssl = ssl.create_default_context()
            return self._ssl


def _connected(origin: Origin) -> socket.socket:
    """Raises OSError."""
    for timeout in CONNECT_TIMEOUTS:
        with CancellableCall(_nothing):
            pass  # a thread that was cancelled makes no further attempt
        try:
            sock = socket.create_connection((origin.host, origin.port), timeout=timeout)
        except TimeoutError:
            continue
        sock.settimeout(CONNECT_TIMEOUT)
        return sock
    raise TimeoutError(f"no connection within {sum(CONNECT_TIMEOUTS):g} s")


def _nothing() -> None:
    """An attempt at a connection ends by itself."""


def _keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Body:
    """An answer whose body is still arriving. `read` gives the next bytes, and an empty piece at the end."""

    def __init__(self, pool: _Pool, connection: _Connection) -> None:
        self._pool = pool
        self._connection = connection
        self._closed = False
        self.status = connection.parser.status
        self.headers = connection.parser.headers

    def read(self, *, timeout: float | None = None) -> bytes:
        """Raises TransportError when the connection is lost or silent for `timeout` seconds."""
        parser = self._connection.parser
        if self._closed:
            return b""
        self._connection.wait(lambda: parser.has_data or parser.done, timeout)
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
        """Gives the connection back, or cuts it when the answer is not over."""
        if not self._closed:
            self._closed = True
            self._pool.release(self._connection)

    def abandon(self) -> None:
        """Close it when nobody reads it any more."""
        self.close()


class Transport:
    """All connections of one client; safe to use from many threads, and after a fork."""

    def __init__(self) -> None:
        self._pools: dict[Origin, _Pool] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._pid = os.getpid()

    def request(self, request: Request) -> Response:
        """Sends a buffered request and reads its whole answer. Raises TransportError."""
        pool = self._pool(request.origin)
        data = self._encode(request)
        while True:
            connection = pool.acquire(fresh=not request.safe)
            reused = connection.used
            try:
                connection.begin(data, timeout=request.timeout)
                parser = connection.parser
                connection.wait(lambda: parser.done, request.timeout)  # noqa: B023
            except TransportError as error:
                stale = reused and not connection.parser.started and not error.timed_out
                pool.discard(connection)
                if pool.closed:
                    raise closed(sent=error.sent) from error
                if stale and request.safe:
                    continue  # the server closed the kept connection while the request was on its way
                raise
            except BaseException:
                pool.discard(connection)
                raise
            response = Response(parser.status, parser.headers, parser.take())
            pool.release(connection)
            return response

    def open(
        self, request: Request, *, source: Iterable[bytes] | None = None, length: int | None = None
    ) -> Body:
        """Sends a request, its body from `source` if given, and returns as soon as the answer begins."""
        pool = self._pool(request.origin)
        connection = pool.acquire(fresh=True)
        try:
            if source is None:
                connection.begin(self._encode(request), timeout=request.timeout)
            else:
                connection.begin(self._head(request, length=length), timeout=request.timeout)
                _send(connection, source, length=length, timeout=request.timeout)
            parser = connection.parser
            connection.wait(lambda: bool(parser.status), request.timeout)
        except BaseException:
            pool.discard(connection)
            raise
        return Body(pool, connection)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            pools = list(self._pools.values())
            self._pools.clear()
        for pool in pools:
            pool.close()

    def _pool(self, origin: Origin) -> _Pool:
        with self._lock:
            if self._pid != os.getpid():
                # Sockets shared with the parent would mix two processes' answers.
                self._pools = {}
                self._pid = os.getpid()
            pool = self._pools.get(origin)
            if pool is None:
                if self._closed:
                    raise closed(sent=False)
                pool = self._pools[origin] = _Pool(origin)
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


def _send(
    connection: _Connection, source: Iterable[bytes], *, length: int | None, timeout: float | None
) -> None:
    """Sends a body; stops early when the server has already answered."""
    sent = 0
    for part in source:
        if not part:
            continue
        if connection.answered():
            return
        sent += len(part)
        if length is not None and sent > length:
            raise ValueError("the source gave more bytes than its length")
        connection.send(part if length is not None else chunk(part), timeout=timeout)
    if length is not None and sent < length:
        raise ValueError("the source gave fewer bytes than its length")
    if length is None:
        connection.send(chunk(b""), timeout=timeout)


def now() -> float:
    """The clock of retry decisions, in seconds."""
    return time.monotonic()
