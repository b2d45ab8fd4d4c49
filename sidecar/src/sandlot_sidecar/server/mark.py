"""The mark on what the sidecar itself sends: by it that passes the tables of `egress.tables`."""

from __future__ import annotations

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
