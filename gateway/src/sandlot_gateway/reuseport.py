"""The listening sockets that share one address while a server takes over from an earlier one in this process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import stat
import struct
from collections.abc import Iterator

_SO_ATTACH_REUSEPORT_CBPF = 51
_UNACKED = (
    24  # offset of tcpi_unacked in the kernel's tcp_info; of a listening socket, its accept queue's length
)


def listening(host: str, port: int) -> list[int]:
    """Return this process's descriptors of TCP sockets that listen on the address and share it (SO_REUSEPORT)."""
    address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][:2]
    found: list[int] = []
    for name in os.listdir("/proc/self/fd"):
        # It may be closed by now, as that of the listing itself is.
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode) and _listens(int(name), address):
                found.append(int(name))
    return found


def prefer_last(earlier: list[int]) -> None:
    """Send new connections to the socket that listens last on these ones' address.

    Without it the kernel spreads them, and ending a socket resets those in its queue. Raises OSError.
    """
    index = len({os.fstat(each).st_ino for each in earlier})
    choice = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, index))  # BPF_RET
    program = struct.pack("HP", 1, ctypes.addressof(choice))
    for descriptor in earlier[:1]:
        with _borrowed(descriptor) as sock:
            sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, program)


def queued(descriptors: list[int]) -> int:
    """Count the connections that these sockets' server has not accepted yet. Raises OSError."""
    count = 0
    for descriptor in descriptors:
        with _borrowed(descriptor) as sock:
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _UNACKED + 4)
            count += struct.unpack_from("I", info, _UNACKED)[0]
    return count


def stop_listening(descriptors: list[int]) -> None:
    """End these listening sockets of a server, and leave its connections alone. Raises OSError.

    Granian can only stop with its connections, and Prime's clients lose their requests by that: httpx rejects what an
    HTTP/2 connection receives after its GOAWAY.
    """
    with socket.socket(socket.AF_UNIX) as idle:
        # Not closed, since the server uses these numbers: they become a socket that nobody connects to.
        idle.bind("")
        idle.listen(1)
        idle.setblocking(False)
        for descriptor in descriptors:
            os.dup2(idle.fileno(), descriptor, inheritable=False)


def _listens(descriptor: int, address: tuple[object, ...]) -> bool:
    with _borrowed(descriptor) as sock:
        return (
            sock.family in (socket.AF_INET, socket.AF_INET6)
            and bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
            and bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT))
            and sock.getsockname()[:2] == address
        )


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """Give a socket object for a descriptor that stays its owner's."""
    sock = socket.socket(fileno=descriptor)
    try:
        yield sock
    finally:
        sock.detach()
