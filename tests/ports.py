"""Ports and loopback addresses that belong to this process: no other process with tests in it is given the same ones.

A port that the kernel finds free is anybody's again until a program listens there. These lie below those that the
kernel gives away (`net.ipv4.ip_local_port_range`), in a block that one process holds until it ends.
"""

from __future__ import annotations

import itertools
import socket

_FIRST, _BLOCK, _BLOCKS = 10_000, 200, 100


def _reserve() -> int:
    for number in range(_BLOCKS):
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0sandlot-tests-block-{number}")
        except OSError:
            lock.close()
            continue
        lock.detach()  # it is let go by the end of the process
        return number
    raise RuntimeError(f"{_BLOCKS} processes with tests run in this network namespace")


# At import: a descriptor that is opened in the middle of a test would be taken for a leak of it.
NUMBER = _reserve()
_turn = itertools.cycle(range(_FIRST + NUMBER * _BLOCK, _FIRST + (NUMBER + 1) * _BLOCK))


def free_port() -> int:
    """One at which nothing listens on any address."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """So many in a row."""
    found: list[int] = []
    while len(found) < count:
        port = next(_turn)
        if not _is_free(port):
            found = []
        elif found and port != found[-1] + 1:
            found = [port]
        else:
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("", port)).close()
    except OSError:
        return False
    return True


def address(number: int) -> str:
    """A loopback address of this process's own, by a number below 65,536."""
    return f"127.{64 + NUMBER}.{number >> 8}.{number & 255}"
