"""Sends the requests of one client, buffered or streamed."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable

from sandlot._protocol.http1 import Origin, chunk, request_head
from sandlot._protocol.messages import Request, Response, TransportError, closed
from sandlot._transport_sync.body import Body
from sandlot._transport_sync.connection import Connection
from sandlot._transport_sync.pool import Pool

_transports: weakref.WeakSet[Transport] = weakref.WeakSet()


class Transport:
    """All connections of one client; safe to use from many threads, and after a fork."""

    def __init__(self) -> None:
        self._pools: dict[Origin, Pool] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._pid = os.getpid()
        _transports.add(self)

    def request(self, request: Request) -> Response:
        """Send a buffered request and read its whole response. Raises TransportError."""
        pool = self._pool(request.origin)
        data = self._encode(request)
        while True:
            connection = pool.acquire(fresh=not request.safe, within=request.timeout)
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
                    continue  # the server closed the idle connection while the request was in flight
                raise
            except BaseException:
                pool.discard(connection)
                raise
            response = Response(parser.status, parser.headers, parser.take())
            pool.release(connection)
            return response

    def open(
        self,
        request: Request,
        *,
        source: Callable[[], Iterable[bytes]] | None = None,
        length: int | None = None,
    ) -> Body:
        """Send a request, its body from `source` if given, and return as soon as the response begins.

        A safe request takes an idle connection if there is one: it calls `source` again if the server has closed it.
        """
        pool = self._pool(request.origin)
        while True:
            connection = pool.acquire(fresh=not request.safe)
            reused = connection.used
            try:
                if source is None:
                    connection.begin(self._encode(request), timeout=request.timeout)
                else:
                    connection.begin(self._head(request, length=length), timeout=request.timeout)
                    _send(connection, source(), length=length, timeout=request.timeout)
                parser = connection.parser
                connection.wait(lambda: bool(parser.status), request.timeout)  # noqa: B023
            except TransportError as error:
                stale = reused and not connection.parser.started and not error.timed_out
                pool.discard(connection)
                if stale and request.safe and not pool.closed:
                    continue
                raise
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

    def forget(self) -> None:
        """In a forked child: sockets shared with the parent would mix two processes' responses."""
        self._lock = threading.Lock()  # a thread of the parent may have had it
        self._pid = os.getpid()
        for pool in self._pools.values():
            pool.forget()

    def _pool(self, origin: Origin) -> Pool:
        with self._lock:
            if self._pid != os.getpid():  # a fork by C, such as a web server's, calls no hook
                self._pools = {}
                self._pid = os.getpid()
            pool = self._pools.get(origin)
            if pool is None:
                if self._closed:
                    raise closed(sent=False)
                pool = self._pools[origin] = Pool(origin)
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
    connection: Connection, source: Iterable[bytes], *, length: int | None, timeout: float | None
) -> None:
    """Send a body; stop early once the server has responded."""
    sent = 0
    for part in source:
        if not part:
            continue
        if connection.answered():
            connection.unfinished = True
            return
        sent += len(part)
        if length is not None and sent > length:
            raise ValueError("the source gave more bytes than its length")
        connection.send(part if length is not None else chunk(part), timeout=timeout)
    if length is not None and sent < length:
        raise ValueError("the source gave fewer bytes than its length")
    if length is None:
        connection.send(chunk(b""), timeout=timeout)


def _forget() -> None:
    for transport in list(_transports):
        transport.forget()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget)
