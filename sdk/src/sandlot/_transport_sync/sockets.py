"""Opens TCP connections from a thread, and has the kernel watch over them."""

from __future__ import annotations

import socket

from sandlot._cancel_sync import CancellableCall
from sandlot._protocol.http1 import Origin
from sandlot._protocol.retry import CONNECT_TIMEOUTS

CONNECT_TIMEOUT = 10.0


def connect(origin: Origin) -> socket.socket:
    """Opens a TCP connection to the server. Raises OSError."""
    for timeout in CONNECT_TIMEOUTS:
        with CancellableCall(_nothing):
            pass  # a thread that was cancelled makes no further attempt
        try:
            sock = socket.create_connection((origin.host, origin.port), timeout=timeout)
        except TimeoutError:
            continue
        sock.settimeout(CONNECT_TIMEOUT)
        return sock
    raise TimeoutError(f"no connection within {sum(CONNECT_TIMEOUTS):g} s")


def _nothing() -> None:
    """An attempt at a connection ends by itself."""


def keep_alive(sock: socket.socket) -> None:
    """Makes the kernel notice a peer that vanished, in about a minute, also while we only wait."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
