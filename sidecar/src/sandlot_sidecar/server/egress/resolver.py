"""Resolves host names by querying the name servers directly, unaffected by /etc/hosts."""

from __future__ import annotations

import asyncio
import os
import socket

from .. import mark
from . import dns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..nameservers import NameServers

_PORT = 53
_DATAGRAM = 4096


class Resolver:
    """Queries the name servers that were configured before the first claim."""

    def __init__(self, names: NameServers) -> None:
        self._names = names

    async def addresses(self, name: str) -> list[str]:
        """Return IPv4 addresses, at least one; an address resolves to itself. Raises OSError or ValueError."""
        try:
            return [socket.inet_ntoa(socket.inet_pton(socket.AF_INET, name))]
        except OSError:
            pass
        if name == "localhost" or name.endswith(".localhost"):  # RFC 6761: must not be queried
            return ["127.0.0.1"]
        for each in (name, *(f"{name}.{end}" for end in self._names.search)):
            try:
                found = await self._ask(each)
            except dns.NoSuchName:
                continue
            if found:
                return found
        raise OSError("no name server knows this name")

    async def _ask(self, name: str) -> list[str]:
        """Query the servers in order. Raises OSError, ValueError and NoSuchName."""
        if not self._names.servers:
            raise OSError("/etc/resolv.conf named no name server when the sidecar started")
        failure = ""
        for _ in range(self._names.attempts):
            for server in self._names.servers:
                asked = dns.question(name, number=int.from_bytes(os.urandom(2), "big"))
                try:
                    async with asyncio.timeout(self._names.timeout):
                        return await _ask_server(server, asked)
                except (dns.Unusable, OSError, TimeoutError) as error:
                    failure = f"{server}: {error or 'no answer'}"
        raise OSError(f"no name server answers ({failure})")


async def _ask_server(server: str, asked: bytes) -> list[str]:
    try:
        return await _by_datagram(server, asked)
    except dns.Truncated:
        return await _by_connection(server, asked)


async def _by_datagram(server: str, asked: bytes) -> list[str]:
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        mark.put_on(sock)
        sock.setblocking(False)
        sock.connect((server, _PORT))  # the kernel drops other senders' datagrams
        await loop.sock_sendall(sock, asked)
        while True:
            data = await loop.sock_recv(sock, _DATAGRAM)
            if data[:2] == asked[:2]:  # otherwise a late response to an earlier query
                return dns.answer(data, asked=asked)


async def _by_connection(server: str, asked: bytes) -> list[str]:
    reader, writer = await asyncio.open_connection(sock=await mark.connect(server, _PORT))
    try:
        writer.write(len(asked).to_bytes(2, "big") + asked)
        size = int.from_bytes(await reader.readexactly(2), "big")
        return dns.answer(await reader.readexactly(size), asked=asked)
    except (dns.Truncated, EOFError) as error:
        raise dns.Unusable("the response is truncated") from error
    finally:
        writer.transport.abort()
