"""Opens the UDP sockets of exposures: one that hears of new clients, and one connected to each client.

The kernel gives a client's datagrams to the socket that is connected to it, so each client has a buffer of its own.
"""

from __future__ import annotations

import socket
from typing import Any

from . import udp_limits

Address = tuple[Any, ...]  # of a socket: host, port, and for IPv6 flow label and scope

MAX_READ = 65_536
_MOST_UNREAD = 1024  # more than fit into the buffer, but for those that arrive meanwhile
_ANCILLARY = socket.CMSG_SPACE(20)
_PKTINFO = 8  # IP_PKTINFO; this Python has no name for it


def listening(host: str, port: int) -> socket.socket:
    """Open the socket that receives from all clients. Raises OSError, also if the port is taken."""
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # as for TCP
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        else:
            sock.setsockopt(socket.IPPROTO_IP, _PKTINFO, 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


def receive(sock: socket.socket) -> tuple[bytes, Address, str]:
    """Return a datagram, its sender and the local address to which it came. Raises OSError."""
    data, ancillary, _, sender = sock.recvmsg(MAX_READ, _ANCILLARY)
    for level, kind, value in ancillary:
        if (level, kind) == (socket.IPPROTO_IP, _PKTINFO):
            return data, sender, socket.inet_ntop(socket.AF_INET, value[4:8])
        if (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):
            return data, sender, socket.inet_ntop(socket.AF_INET6, value[:16])
    return data, sender, sock.getsockname()[0]


def connected(listener: socket.socket, *, local: str, client: Address) -> socket.socket:
    """Open a socket on the listener's port that receives from this client alone. Raises OSError.

    Datagrams of other clients may arrive in it while it is bound and not connected yet: compare their senders.
    """
    port, *rest = listener.getsockname()[1:]
    sock = socket.socket(listener.family, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, udp_limits.KERNEL_HIGH)
        # The listener only now: else another process of this user could open the port, too.
        for each in (listener, sock):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        scope = (0, client[3]) if listener.family == socket.AF_INET6 else tuple(rest)
        sock.bind((local, port, *scope))
        sock.connect(client)
    except BaseException:
        sock.close()
        raise
    finally:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)
    return sock


def unread(sock: socket.socket) -> int:
    """Take the datagrams that wait in a socket; return their number."""
    for number in range(_MOST_UNREAD):
        try:
            sock.recv(1)
        except ConnectionRefusedError:
            continue
        except OSError:
            return number
    return _MOST_UNREAD
