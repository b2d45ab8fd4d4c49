"""Listens on a TCP port and relays each connection to a sandbox, with half-close and back-pressure."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable

from .conn import Connection
from .errors import PoolError

MAX_CONNECTIONS = 512  # per listener; further ones are closed at once
_PIECE = 64 * 1024
_RESET, _END = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)  # SO_LINGER: close by a RST, or by a FIN


class PortListener:
    """A TCP listener; `tunnel` opens the connection into the sandbox for each client, or returns None."""

    def __init__(self, tunnel: Callable[[], Awaitable[Connection | None]]) -> None:
        self._tunnel = tunnel
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> int:
        """Listen and return the bound port. Raises OSError."""
        self._server = await asyncio.start_server(self._accepted, host, port, limit=_PIECE, backlog=1024)
        return self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            self._server.close()
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._server is not None:
            await self._server.wait_closed()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) <= MAX_CONNECTIONS:
                await self._carry(reader, writer)
        except asyncio.CancelledError:
            if not task.cancelling():
                raise
            # `close` cancelled us and waits; asyncio's streams would log a cancelled handler as an error.
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        try:
            connection = await self._tunnel()
        except PoolError:
            connection = None
        if connection is None:
            return
        await relay(reader, writer, connection)


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: Connection) -> None:
    """Carry bytes both ways until both have ended or one side has failed; close `writer` and `connection`.

    Unless both have ended, both are reset: with a FIN, what was cut off would look whole. A Unix socket has no reset.
    """
    ends = (writer.get_extra_info("socket"), connection.sock)
    _close_by(_RESET, ends)  # from now on, so that also the death of this process does
    is_whole = False
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(_up(reader, connection))
            both.create_task(_down(connection, writer))
        _close_by(_END, ends)
        # All bytes are written; wait until both sides have read them.
        writer.close()
        with contextlib.suppress(OSError):
            await asyncio.gather(writer.wait_closed(), connection.finish())
            is_whole = True
    except* (OSError, PoolError):
        pass  # one side failed: both are reset
    finally:
        if not is_whole:
            _close_by(_RESET, ends)
        writer.transport.abort()
        connection.close()


def _close_by(how: bytes, ends: tuple[socket.socket, ...]) -> None:
    for end in ends:
        # It is closed already. ValueError: uvloop's socket of a connection that the client has reset.
        with contextlib.suppress(OSError, ValueError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, how)


async def _up(reader: asyncio.StreamReader, connection: Connection) -> None:
    while data := await reader.read(_PIECE):
        connection.write(data)
        await connection.drain()
    connection.write_eof()


async def _down(connection: Connection, writer: asyncio.StreamWriter) -> None:
    while data := await connection.read():
        writer.write(data)
        await writer.drain()
    writer.write_eof()
