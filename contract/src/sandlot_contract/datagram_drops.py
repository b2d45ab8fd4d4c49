"""Counts the datagrams that a UDP socket lost."""

from __future__ import annotations

import socket
import sys

_SO_MEMINFO, _DROPS = 55, 8  # its ninth number counts the datagrams that the socket's full buffer rejected
_SIZE = 36  # bytes of nine numbers


def rejected(sock: socket.socket) -> int:
    """Return how many datagrams found the socket's buffer full so far; 0 where the kernel does not count them (gVisor)."""
    try:
        counts = sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _SIZE)
    except OSError:
        return 0
    if len(counts) < _SIZE:
        return 0
    return int.from_bytes(counts[_DROPS * 4 : _DROPS * 4 + 4], sys.byteorder)
