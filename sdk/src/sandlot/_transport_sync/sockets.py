"""Opens TCP connections from a thread, with keep-alive."""

from __future__ import annotations

import socket

from sandlot._cancel_sync import CancellableCall
from sandlot._protocol.http1 import Origin
from sandlot._protocol.retry import CONNECT_TIMEOUTS

CONNECT_TIMEOUT = 10.0


def connect(origin: Origin, *, within: float | None = None) -> socket.socket:
    """Open a TCP connection to the server, within so many seconds for each of its addresses. Raises OSError."""
    limit = CONNECT_TIMEOUT if within is None else min(max(within, 0.1), CONNECT_TIMEOUT)
    left = limit
    for timeout in CONNECT_TIMEOUTS:
        with CancellableCall(_nothing):
            pass  # a cancelled thread makes no further attempt
        try:
            sock = socket.create_connection((origin.host, origin.port), timeout=min(timeout, left))
        except TimeoutError:
            left -= timeout
            if left <= 0:
                break
            continue
        sock.settimeout(limit)
        return sock
    raise TimeoutError(f"no connection within {limit:g} s")


def _nothing() -> None:
    """Do nothing on cancellation: a connection attempt ends by its own timeout."""


def keep_alive(sock: socket.socket) -> None:
    """Set TCP keep-alive, so that the kernel detects a vanished peer in about a minute of silence."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
