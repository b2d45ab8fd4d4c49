"""One connection to an upstream: writes requests, reads responses or raw bytes, with back-pressure both ways."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from .errors import UpstreamError, WireError
from .wire import ResponseReader

_PEEK = 0x02 | 0x40  # MSG_PEEK | MSG_DONTWAIT
READ_HIGH = 256 * 1024  # bytes held for a slow consumer before reading pauses


class Connection(asyncio.Protocol):
    """Made by the pool. One request at a time: `begin`, `write`…, `head`, `read`… until b"", then back to the pool.

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
        self.uses = 0  # requests begun on it
        self.on_idle_lost: Callable[[Connection], None] = _nothing
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._drain: asyncio.Future[None] | None = None
        self._read_paused = False
        self._write_paused = False

    # The caller's side.

    def begin(self, data: bytes, *, no_body: bool = False, upgrade: bool = False) -> None:
        """Start a request with its head (and as much of its body as there is) in one write."""
        self.uses += 1
        self._reader.expect(no_body=no_body, upgrade=upgrade)
        self.write(data)

    @property
    def lost(self) -> bool:
        """Nothing can be sent any more; `closed` comes an iteration of the loop later when the other end did it."""
        return self.closed or self.transport.is_closing()

    def write(self, data: bytes) -> None:
        if not self.lost:  # uvloop raises RuntimeError
            self.transport.write(data)

    def is_quiet(self) -> bool:
        """Whether the kernel holds neither bytes nor the end of a connection that is idle.

        The loop may not have looked yet: a peer that closed a moment ago would otherwise get the next request, and
        nobody could say whether it ran.
        """
        try:
            self.sock.recv(1, _PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def write_eof(self) -> None:
        """Half-close: the peer reads the end, and can still send."""
        if not self.lost and self.transport.can_write_eof():
            self.transport.write_eof()

    async def drain(self) -> None:
        """Wait until the peer has taken enough of what was written."""
        while self._write_paused and not self.closed:
            if self._drain is None:
                self._drain = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drain)

    @property
    def answering(self) -> bool:
        """The response's head is here: perhaps before the request's body was sent."""
        return self._reader.head_complete

    @property
    def waits(self) -> bool:
        """`read` has to wait: nothing has arrived that was not taken, and the body has not ended."""
        return not self._reader.pieces and not self._reader.complete

    @property
    def reusable(self) -> bool:
        """The response was read to its end, and another request can follow."""
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
        """What has arrived of the body, at least one byte; b"" at its end. Raises UpstreamError."""
        reader = self._reader
        while True:
            if reader.pieces:
                return self.take()
            if reader.complete or (reader.upgraded and self.eof):
                return b""
            if self._error is not None or self.closed:
                raise self._failure()
            await self._wait()

    def take(self) -> bytes:
        """What has arrived of the body so far. Without it the next response on this connection would not be read."""
        data = self._reader.take()
        if self._read_paused and not self.closed:
            self._read_paused = False
            self.transport.resume_reading()
        return data

    def reset_to_http(self) -> None:
        """After a 101: what follows on this connection is HTTP again (a tunnel to a web server).

        The peer speaks only when spoken to, so nothing can have arrived yet; if it has, the connection is not
        trusted with a request.
        """
        early = bool(self._reader.pieces)
        self._reader.close()
        self._reader = ResponseReader()
        self._reader.excess = early

    def close(self) -> None:
        """At once, whatever is still to be written: the peer notices that nobody is there any more."""
        if not self.closed:
            self.closed = True
            self.transport.abort()
            self._wake()

    # The event loop's side.

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
        if reader.body_size > READ_HIGH and not self._read_paused and not self.closed:
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
        elif self._error is None and not self._reader.complete:
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
    """Stands until the pool has put itself in."""
