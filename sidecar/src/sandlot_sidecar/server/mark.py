"""Marks the sidecar's own traffic, which the tables of `egress.tables` let pass."""

from __future__ import annotations

import asyncio
import socket

from .. import kernel

MARK = 0x5A4D


def put_on(sock: socket.socket) -> None:
    """Mark a socket and those it accepts, under gVisor only: on Linux, policies match processes instead."""
    if kernel.is_gvisor():
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
        except PermissionError:
            return  # without this right the sandbox cannot have a policy either


async def connect(address: str, port: int) -> socket.socket:
    """Return a connection that is exempt from the sandbox's egress policy. Raises OSError."""
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        put_on(sock)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock
