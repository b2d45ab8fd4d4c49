"""Connects to "unix:/path" and "host:port": one attempt, the only step of a request that is retried."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol, cast

from sandlot_contract.sidecar import ENCRYPTED
from sandlot_contract.tls_faults import reason_of
from sandlot_contract.tls_stream import TlsStream

from .conn import Connection
from .errors import DialError

_NO_FILES = "it speaks TLS, and this gateway has no certificate for it: set --sidecar-tls-dir, in the chart sidecarTls.enabled"
_RESOLVERS = ThreadPoolExecutor(8, thread_name_prefix="resolver")


@dataclass(frozen=True, slots=True)
class DialSettings:
    """Timeouts and backoff of dials, in seconds."""

    timeout: float = 10.0  # of one attempt, at most
    first_timeout: float = 0.25  # of the first attempt; each further one has three times the one before
    backoff: float = 0.02  # before the second attempt, doubled for each further one, ± 50 %
    max_backoff: float = 0.5

    def timeout_of(self, timeouts: int) -> float:
        """Return the timeout of an attempt that follows `timeouts` unanswered ones in a row.

        The kernel repeats a lost SYN after one second, and a node loses some whenever its packet filter is rewritten,
        which happens with every pod that starts or ends. So the first attempt is short. A sandbox that is slow to
        accept needs long ones: each attempt that is abandoned leaves it a dead connection to accept.
        """
        return min(self.timeout, self.first_timeout * 3 ** min(timeouts, 20))

    def pause_after(self, failures: int) -> float:
        """Return the pause before the next attempt, after `failures` in a row."""
        return min(self.max_backoff, self.backoff * 2 ** min(failures - 1, 20)) * random.uniform(0.5, 1.5)


class Encryption(Protocol):
    """Makes the TLS stream of a new connection to a sidecar; see sidecar_tls.py."""

    def dialled(self, connection: asyncio.Protocol) -> TlsStream: ...

    def dial_failed(self, address: str, reason: str) -> None:
        """Log that a sidecar and this gateway do not accept each other."""
        ...


async def dial(address: str, *, timeout: float, tls: Encryption | None = None) -> Connection:
    """Connect to `address` in one attempt. Raises DialError; nothing has been sent then."""
    try:
        return await _connect(address, timeout=timeout, tls=tls)
    except ssl.SSLError as error:
        # Like a refused connection: the machine is up, and what it accepts may be about to change.
        reason = reason_of(error)
        if tls is not None:
            tls.dial_failed(address, reason)
        raise DialError(address, f"TLS: {reason}", refused=True, tls=True) from error
    except (OSError, TimeoutError) as error:
        refused = isinstance(error, (ConnectionRefusedError, FileNotFoundError))
        raise DialError(address, _reason(error), refused=refused, nothing_listens=refused) from error


def split_host_port(address: str) -> tuple[str, int]:
    """Split "10.0.0.7:8700" into ("10.0.0.7", 8700), "[::1]:8700" into ("::1", 8700). Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"not an address: {address!r}")
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    if not host or ":" in host:
        raise ValueError(f"not an address (IPv6 needs brackets): {address!r}")
    return host, int(port)


async def _connect(address: str, *, timeout: float, tls: Encryption | None) -> Connection:
    loop = asyncio.get_running_loop()
    if address.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            # Does not block: a Unix socket connects at once or not at all. The loop's own sock_connect mistakes a
            # full backlog (EAGAIN) for a connection in progress and then reports it as connected.
            sock.connect(address[5:])
        except BaseException:
            sock.close()
            raise
    else:
        encrypted = address.startswith(ENCRYPTED)
        if encrypted and tls is None:
            raise DialError(address, _NO_FILES, final=True, tls=True)
        try:
            host, port = split_host_port(address.removeprefix(ENCRYPTED))
        except ValueError as error:
            raise DialError(address, str(error), final=True) from error
        async with asyncio.timeout(timeout):
            family, target = _literal(host, port) or await _resolved(host, port)
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                keep_alive(sock)
                await _connected(sock, target)
            except BaseException:
                sock.close()
                raise
    connection = Connection(address=address, sock=sock)
    if tls is not None and address.startswith(ENCRYPTED):
        await _encrypt(connection, tls)
        return connection
    try:
        if sock.family == socket.AF_UNIX:
            await loop.create_unix_connection(lambda: connection, sock=sock)
        else:
            await loop.create_connection(lambda: connection, sock=sock)
    except BaseException:
        sock.close()
        raise
    return connection


async def _encrypt(connection: Connection, tls: Encryption) -> None:
    """Return once the sidecar has accepted our certificate: a request before could not tell whether it ran."""
    loop = asyncio.get_running_loop()
    try:
        stream = tls.dialled(connection)
        await loop.create_connection(lambda: stream, sock=connection.sock)
    except BaseException:
        connection.sock.close()
        raise
    try:
        await asyncio.shield(stream.accepted)
    except BaseException:
        stream.abort()
        raise


async def _connected(sock: socket.socket, target: tuple[str, int] | tuple[str, int, int, int]) -> None:
    """Connect the socket. Raises OSError.

    uvloop's own sock_connect goes through its resolver even for an address. The resolver has four threads, and a few
    names that are slow to resolve occupy them for many seconds; in that time no sandbox could be dialled.
    """
    with contextlib.suppress(BlockingIOError):
        sock.connect(target)
        return
    loop = asyncio.get_running_loop()
    writable = asyncio.Event()
    loop.add_writer(sock, writable.set)
    try:
        await writable.wait()
    finally:
        loop.remove_writer(sock)
    error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))


_Target = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]


def _literal(host: str, port: int) -> _Target | None:
    """Return the socket address if `host` is an IP address, which spares the wait for a resolver thread."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return family, (host, port)
    return None


async def addresses_of(host: str, port: int) -> list[str]:
    """Resolve a name to all its addresses, in the form that `dial` takes. Raises OSError if it has none."""
    literal = _literal(host, port)
    found = await _lookup(host, port) if literal is None else [literal]
    return [
        f"[{target[0]}]:{port}" if family == socket.AF_INET6 else f"{target[0]}:{port}"
        for family, target in dict.fromkeys(found)
    ]


async def _resolved(host: str, port: int) -> _Target:
    return (await _lookup(host, port))[0]


async def _lookup(host: str, port: int) -> list[_Target]:
    # Its own threads: the loop's few also serve the connections to the API server.
    loop = asyncio.get_running_loop()
    infos = await loop.run_in_executor(
        _RESOLVERS, partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    )
    return [(family, cast("tuple[str, int]", target)) for family, _, _, _, target in infos]


def keep_alive(sock: socket.socket) -> None:
    """Set TCP keep-alive, so that a peer whose machine is gone is noticed after 30 s."""
    for option in keep_alive_options():
        sock.setsockopt(*option)


def keep_alive_options() -> list[tuple[int, int, int]]:
    values = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
    found = [(socket.IPPROTO_TCP, getattr(socket, name), n) for name, n in values if hasattr(socket, name)]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *found]


def _reason(error: OSError | TimeoutError) -> str:
    if isinstance(error, TimeoutError):
        return str(error) if error.args and not error.errno else "no answer to the connection attempt"
    if isinstance(error, BlockingIOError):
        return "its listen backlog is full"
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
