"""Opens TCP connections from an event loop, with keep-alive."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

from sandlot._protocol.http1 import Origin
from sandlot._protocol.retry import CONNECT_TIMEOUTS
from sandlot._tasks_async import settle

_Address = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]


async def connect(loop: asyncio.AbstractEventLoop, origin: Origin) -> socket.socket:
    """Open a TCP connection to the first of the server's addresses that accepts one. Raises OSError."""
    addresses = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    failure: OSError = TimeoutError()
    for timeout in CONNECT_TIMEOUTS:
        for family, kind, number, _, address in addresses:
            sock = socket.socket(family, kind, number)
            sock.setblocking(False)
            try:
                async with asyncio.timeout(timeout):
                    await _opened(loop, sock, address)
                return sock
            except OSError as error:
                sock.close()
                failure = error
            except BaseException:
                sock.close()
                raise
        if not isinstance(failure, TimeoutError):
            raise failure
    raise TimeoutError(f"no connection within {sum(CONNECT_TIMEOUTS):g} s")


async def _opened(loop: asyncio.AbstractEventLoop, sock: socket.socket, address: _Address) -> None:
    """Connect the socket. Raises OSError.

    uvloop's sock_connect uses its resolver even for an address: four threads, which may all be busy with other
    lookups of this process.
    """
    with contextlib.suppress(BlockingIOError):
        sock.connect(address)
        return
    writable = loop.create_future()
    try:
        loop.add_writer(sock, settle, writable)
    except NotImplementedError:  # Windows
        await loop.sock_connect(sock, address)
        return
    try:
        await writable
    finally:
        loop.remove_writer(sock)
    error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))


def keep_alive(sock: socket.socket) -> None:
    """Set TCP keep-alive, so that the kernel detects a vanished peer in about a minute of silence."""
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    except OSError:
        pass  # not a TCP socket
