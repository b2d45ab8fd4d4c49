"""Carries bytes between two connections, both ways, with half-close and backpressure."""

from __future__ import annotations

import asyncio
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_PIECE = 64 << 10
_RESET, _END = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)  # SO_LINGER


async def carry(one: Streams, other: Streams) -> None:
    """Carry until both directions have ended. Raises OSError; `other` is closed in any case, `one` only at the end.

    Unless both have ended, both are reset, also if this process dies. A Unix socket has no reset.
    """
    _close_by(_RESET, one[1], other[1])
    try:
        await asyncio.gather(_copy(one[0], other[1]), _copy(other[0], one[1]))
        _close_by(_END, one[1], other[1])
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
    reset_transport(writer.transport)


def reset_transport(transport: Any) -> None:
    """Reset unless closed."""
    if transport.get_extra_info("socket").fileno() >= 0:
        _close_by(_RESET, transport)
        transport.abort()


def _close_by(how: bytes, *ends: Any) -> None:
    """Have streams or transports be closed by a RST or a FIN."""
    for end in ends:
        sock = end.get_extra_info("socket")
        if sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, how)
