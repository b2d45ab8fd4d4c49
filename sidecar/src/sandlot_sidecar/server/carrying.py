"""Carries bytes between two connections, both ways, with half-close and backpressure."""

from __future__ import annotations

import asyncio
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_PIECE = 64 << 10


async def carry(one: Streams, other: Streams) -> None:
    """Carry until both directions have ended. Raises OSError; `other` is closed in any case, `one` only at the end."""
    try:
        await asyncio.gather(_copy(one[0], other[1]), _copy(other[0], one[1]))
        await close(other[1])
        await close(one[1])
    finally:
        reset(other[1])


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until end of file, and pass that on."""
    while data := await reader.read(_PIECE):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def close(writer: asyncio.StreamWriter) -> None:
    """Close after everything is sent."""
    writer.close()
    await writer.wait_closed()


def reset(writer: asyncio.StreamWriter) -> None:
    """Reset unless closed, so that the peer does not take a cut connection for a complete one."""
    sock = writer.get_extra_info("socket")
    if sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
