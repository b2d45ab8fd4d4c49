"""The mark on what the sidecar itself sends: by it that passes the tables of `egress.tables`."""

from __future__ import annotations

import asyncio
import socket

from .. import kernel

MARK = 0x5A4D


def put_on(sock: socket.socket) -> None:
    """Mark a socket, and what it will accept. On Linux, where marks are the node's, and policies know processes, nothing."""
    if kernel.is_gvisor():
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
        except PermissionError:
            return  # then it may hold no policy either


async def connect(address: str, port: int) -> socket.socket:
    """A connection that no policy of the sandbox's holds. Raises OSError."""
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        put_on(sock)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock
