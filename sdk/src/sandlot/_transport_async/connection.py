"""One connection over asyncio: sends a request and waits for its response, with flow control."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from sandlot._protocol.http1 import ProtocolError, ResponseParser
from sandlot._protocol.messages import TransportError
from sandlot._transport_async.sockets import keep_alive

HIGH_WATER = 256 * 1024  # bytes received and not yet read, before reading from the socket is paused


class Connection(asyncio.Protocol):
    """One connection: at most one request at a time, and one task that waits for its response."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, forget: Callable[[Connection], None]) -> None:
        self._loop = loop
        self._forget = forget  # called with a connection that cannot be reused
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
        self.unfinished = False  # the peer still expects bytes of the last request's body
        self.idle_since = 0.0

    # called by asyncio

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
        self._forget(self)
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

    # called by the pool's users

    @property
    def alive(self) -> bool:
        return self.transport is not None and not self.transport.is_closing() and self.error is None

    def begin(self, data: bytes, *, want_all: bool) -> None:
        """Start a request on an unused or finished connection."""
        self.parser = ResponseParser()
        self.unfinished = False
        self._want_all = want_all
        self._buffered = 0
        self.used = True
        if self.transport is None:
            raise TransportError("the connection was closed", sent=False)
        if self._reading_paused:  # the last response arrived whole, and its reader left it unread
            self._reading_paused = False
            self.transport.resume_reading()
        self.transport.write(data)

    async def write(self, data: bytes) -> None:
        """Send a chunk of a body, no faster than the peer reads. Once the response has begun, it leaves the body unfinished."""
        if self.transport is None or self.parser.status:
            self.unfinished = True
            return
        self.transport.write(data)
        while self._writing_paused and self.alive and not self.parser.status:
            self._writable = self._loop.create_future()
            try:
                await self._writable
            finally:
                self._writable = None

    async def wait(self, ready: Callable[[], bool], timeout: float | None) -> None:
        """Wait until `ready`, at most `timeout` seconds. Raises TransportError."""
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
        """Return the body bytes that have arrived and resume reading."""
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
        self._forget(self)

    def cut(self, error: TransportError) -> None:
        """Cut the connection; the waiting task raises this error."""
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
