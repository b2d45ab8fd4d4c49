"""Asks a DNS server by UDP for the IPv4 addresses of a name."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

A, AAAA = 1, 28
_NAME_ERROR = 3
_HEADER = struct.Struct("!6H")
_RECORD = struct.Struct("!HHIH")
_TIMEOUT = 2.0


class Asker(asyncio.DatagramProtocol):
    """`ask` from many tasks at once; each question has a number of its own."""

    def __init__(self) -> None:
        self._transport: asyncio.DatagramTransport | None = None
        self._numbers = itertools.cycle(range(1 << 16))
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | int, ...]) -> None:
        waiting = self._waiting.pop(int.from_bytes(data[:2]), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(data)

    def error_received(self, exc: Exception) -> None:
        """Nobody listens there: the question gets its timeout."""

    async def ask(self, name: str, *, kind: int = A) -> list[str] | None:
        """Return the addresses of an absolute name; None without an answer in time."""
        assert self._transport is not None
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._transport.sendto(_question(number, name, kind))
        try:
            async with asyncio.timeout(_TIMEOUT):
                return _addresses(await answer)
        except TimeoutError:
            return None
        finally:
            self._waiting.pop(number, None)


@asynccontextmanager
async def asking(host: str, port: int = 53) -> AsyncIterator[Asker]:
    """Send questions to this server for the block."""
    loop = asyncio.get_running_loop()
    transport, asker = await loop.create_datagram_endpoint(Asker, remote_addr=(host, port))
    try:
        yield asker
    finally:
        transport.close()


def _question(number: int, name: str, kind: int) -> bytes:
    labels = b"".join(bytes([len(part)]) + part for part in name.rstrip(".").encode().split(b"."))
    # An answer of up to 4,096 bytes (EDNS0), as resolvers ask for.
    extension = b"\0" + struct.pack("!HHIH", 41, 4096, 0, 0)
    return _HEADER.pack(number, 0x0100, 1, 0, 0, 1) + labels + b"\0" + struct.pack("!HH", kind, 1) + extension


def _addresses(data: bytes) -> list[str] | None:
    """Read an answer's IPv4 addresses; None: the server has failed."""
    _, flags, questions, answers, _, _ = _HEADER.unpack_from(data)
    if flags & 15 not in (0, _NAME_ERROR):
        return None
    at = _HEADER.size
    for _ in range(questions):
        at = _after_name(data, at) + 4
    found: list[str] = []
    for _ in range(answers):
        at = _after_name(data, at)
        kind, _, _, length = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        if kind == A:
            found.append(socket.inet_ntoa(data[at : at + length]))
        at += length
    return found


def _after_name(data: bytes, at: int) -> int:
    while (length := data[at]) and length < 0xC0:
        at += length + 1
    return at + (2 if length else 1)
