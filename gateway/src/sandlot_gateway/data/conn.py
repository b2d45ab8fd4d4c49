"""One connection to an upstream: writes requests, reads responses or raw bytes, with back-pressure both ways."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from .errors import UpstreamError, WireError
from .wire import ResponseReader

_PEEK = 0x02 | 0x40  # MSG_PEEK | MSG_DONTWAIT
READ_HIGH = 256 * 1024  # bytes buffered for a slow consumer before reading pauses


class Connection(asyncio.Protocol):
    """Made by the pool. One request at a time: `begin`, `write`…, `head`, `read`… until b"", then `release`.

    After a response with status 101 it is a raw duplex: `write`, `write_eof`, `read`.
    """

    __slots__ = (
        "_drain",
        "_error",
        "_read_paused",
        "_reader",
        "_waiter",
        "_write_paused",
        "address",
        "closed",
        "eof",
        "idle",
        "idle_until",
        "on_idle_lost",
        "read_high",
        "sock",
        "transport",
        "uses",
    )

    transport: asyncio.Transport

    def __init__(self, *, address: str, sock: socket.socket) -> None:
        self.address = address
        self.sock = sock
        self._reader = ResponseReader()
        self.closed = False
        self.eof = False  # the peer will send no more
        self.idle = False
        self.idle_until = 0.0
        self.uses = 0  # requests sent over it
        self.read_high = READ_HIGH
        self.on_idle_lost: Callable[[Connection], None] = _nothing
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._drain: asyncio.Future[None] | None = None
        self._read_paused = False
        self._write_paused = False

    # Methods for the caller.

    def begin(self, data: bytes, *, no_body: bool = False, upgrade: bool = False) -> None:
        """Send the head of a request, and as much of its body as there is, in one write."""
        self.uses += 1
        self._reader.expect(no_body=no_body, upgrade=upgrade)
        self.write(data)

    @property
    def lost(self) -> bool:
        """Whether writing is no longer possible; `closed` follows one loop iteration later if the peer closed."""
        return self.closed or self.transport.is_closing()

    def write(self, data: bytes) -> None:
        if not self.lost:  # uvloop raises RuntimeError
            self.transport.write(data)

    def is_quiet(self) -> bool:
        """Return whether the kernel holds neither bytes nor an end of file for this idle connection.

        The loop may not have polled yet: a peer that closed a moment ago would otherwise get the next request, and the
        gateway could not tell whether it ran.
        """
        try:
            self.sock.recv(1, _PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def write_eof(self) -> None:
        """Half-close: the peer reads an end of file, and can still send."""
        if not self.lost and self.transport.can_write_eof():
            self.transport.write_eof()

    @property
    def congested(self) -> bool:
        """Whether the write buffer is above its limit."""
        return self._write_paused

    @property
    def held(self) -> int:
        """The bytes that wait in it, to be written or read."""
        return 0 if self.lost else self.transport.get_write_buffer_size() + self._reader.body_size

    async def drain(self) -> None:
        """Wait until the write buffer is below its limit."""
        while self._write_paused and not self.closed:
            if self._drain is None:
                self._drain = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drain)

    @property
    def answering(self) -> bool:
        """Whether the response's head has arrived, possibly before the request's body was sent."""
        return self._reader.head_complete

    @property
    def waits(self) -> bool:
        """Whether `read` would wait: all bytes that arrived were read, and the body has not ended."""
        return not self._reader.pieces and not self._reader.complete

    @property
    def reusable(self) -> bool:
        """Whether the response was read to its end and another request can follow."""
        reader = self._reader
        read = reader.complete and not reader.pieces and not reader.excess
        return read and reader.reusable and not self.lost and not self.eof

    async def head(self) -> ResponseReader:
        """Wait for the response's head. Raises UpstreamError."""
        reader = self._reader
        while not reader.head_complete:
            if self._error is not None or self.closed:
                raise self._failure()
            await self._wait()
        return reader

    async def read(self) -> bytes:
        """Return the body bytes that have arrived, at least one; b"" at the end. Raises UpstreamError."""
        reader = self._reader
        while True:
            if reader.pieces:
                return self.take()
            # What was cut off must not look whole: of a raw duplex only the end that the peer told is one.
            if reader.complete or (self._ended and self._error is None):
                return b""
            if self._error is not None or self.closed:
                raise self._failure()
            await self._wait()

    def take(self) -> bytes:
        """Return the body bytes so far. Until they are taken, the next response cannot be read."""
        data = self._reader.take()
        if self._read_paused and not self.closed:
            self._read_paused = False
            self.transport.resume_reading()
        return data

    def reset_to_http(self) -> None:
        """Return to HTTP after a 101 (for a tunnel to a web server).

        The peer sends nothing before it has a request; if bytes have arrived already, the connection is not used for
        a request.
        """
        early = bool(self._reader.pieces)
        self._reader.close()
        self._reader = ResponseReader()
        self._reader.excess = early

    async def finish(self) -> None:
        """Close once everything is sent."""
        if not self.closed:
            self.transport.close()
        while not self.closed:
            await self._wait()

    def close(self) -> None:
        """Close at once and drop unsent bytes, so that the peer notices."""
        if not self.closed:
            self.closed = True
            self.transport.abort()
            self._wake()

    # Methods for the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.idle:
            self._lost_while_idle()
            return
        reader = self._reader
        try:
            reader.feed(data)
        except WireError as error:
            self._error = UpstreamError(f"bad response from {self.address}: {error}")
            self._error.__cause__ = error
            self.transport.abort()
            self._wake()
            return
        if reader.body_size > self.read_high and not self._read_paused and not self.closed:
            self._read_paused = True
            self.transport.pause_reading()
        if self._waiter is not None and reader.head_complete:
            self._wake()

    def eof_received(self) -> bool:
        self.eof = True
        if self.idle:
            self._lost_while_idle()
            return False
        self._end_of_input()
        self._wake()
        return self._reader.upgraded  # a raw duplex stays open for writing

    def connection_lost(self, exc: Exception | None) -> None:
        if self.idle:
            self._lost_while_idle()
        if exc is None:
            self._end_of_input()
        elif self._error is None and not self._ended:
            self._error = UpstreamError(f"lost the connection to {self.address}: {exc}")
        self.closed = True
        self.eof = True
        self._reader.close()
        self._wake()

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(None)
        self._drain = None

    @property
    def _ended(self) -> bool:
        """Whether all that the peer sends has arrived."""
        return self._reader.complete or (self._reader.upgraded and self.eof)

    def _end_of_input(self) -> None:
        try:
            self._reader.eof()
        except WireError as error:
            if self._error is None:
                self._error = UpstreamError(f"{self.address}: {error}")
                self._error.__cause__ = error

    def _lost_while_idle(self) -> None:
        self.idle = False
        self.on_idle_lost(self)
        self.close()

    def _failure(self) -> Exception:
        return self._error or UpstreamError(f"the connection to {self.address} was closed")

    async def _wait(self) -> None:
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if self.closed and self._drain is not None and not self._drain.done():
            self._drain.set_result(None)


def _nothing(_: Connection) -> None:
    """Do nothing; the placeholder until the pool sets its callback."""
