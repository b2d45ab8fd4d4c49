"""Accepts SSH connections: reads Prime's preamble, checks the key, serves shells and ports of a sandbox."""

from __future__ import annotations

import asyncio
import contextvars
import hmac
import logging
import socket
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any

import asyncssh
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from sandlot_contract.statuses import Status

from ..data.errors import PoolError
from ..data.pool import HttpPool
from ..data.routes import Route, Routes
from ..data.tunnel import open_tunnel
from .sessions import SshSession, SshSessions
from .shell import Shell

log = logging.getLogger("sandlot.ssh")
# At lower levels asyncssh logs every command; users' input does not belong in the gateway's log.
asyncssh.set_log_level(logging.WARNING)

MAX_CONNECTIONS = 512  # further ones are closed at once
_PREAMBLE = b"PRIME-SSH-SESSION "
_LINE = 128  # bytes of the preamble, at most
_LOGIN = 20.0  # seconds for authentication
_APPEAR = 10.0  # seconds of these for another gateway's sandbox to become known here
_PIECE = 64 * 1024
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Listener:
    """One TCP port for all sandboxes; the user name selects the session."""

    def __init__(
        self, *, sessions: SshSessions, routes: Routes, pool: HttpPool, host_key: Callable[[], bytes]
    ) -> None:
        """`host_key` is asked for the seed of each connection's host key, which changes with the master key."""
        self._sessions = sessions
        self._routes = routes
        self._pool = pool
        self._host_key = host_key
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._socket is not None
        return self._socket.getsockname()[1]

    @staticmethod
    def fingerprint(public_key: str) -> str | None:
        """Return the key's fingerprint, or None if it is not a public key."""
        try:
            return asyncssh.import_public_key(public_key).get_fingerprint()
        except (asyncssh.KeyImportError, ValueError, RecursionError):
            return None

    async def open(self, host: str, port: int) -> None:
        """Start listening. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=128)
        self._socket.setblocking(False)
        # In its own context: else every log line would carry the id of the request that opened the port.
        context = contextvars.Context()
        self._accepting = asyncio.get_running_loop().create_task(self._accept(), context=context)

    async def close(self) -> None:
        tasks = {*self._tasks, *([self._accepting] if self._accepting else ())}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._socket is not None:
            self._socket.close()

    async def _accept(self) -> None:
        assert self._socket is not None
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(self._socket)
            except OSError as error:
                log.warning("cannot accept an SSH connection: %s", error)
                await asyncio.sleep(0.1)  # out of descriptors: without a pause this would loop
                continue
            if len(self._tasks) >= MAX_CONNECTIONS:
                sock.close()
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = loop.create_task(self._serve(sock))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, sock: socket.socket) -> None:
        connection: asyncssh.SSHServerConnection | None = None
        try:
            async with asyncio.timeout(_LOGIN):
                named = await _preamble(sock)
                connection = await asyncssh.run_server(
                    sock,
                    server_factory=lambda: _Server(
                        named, sessions=self._sessions, routes=self._routes, pool=self._pool
                    ),
                    server_host_keys=[_host_key(self._host_key())],
                    password_auth=False,
                    kbdint_auth=False,
                    host_based_auth=False,
                    gss_host=None,
                    # Both would open sockets on the gateway's machine.
                    agent_forwarding=False,
                    x11_forwarding=False,
                    encoding=None,
                    line_editor=False,
                    login_timeout=_LOGIN,
                    keepalive_interval=30,
                )
            await connection.wait_closed()
        except (OSError, asyncssh.Error, TimeoutError, ValueError) as error:
            log.debug("an SSH connection ended: %s", error)
        finally:
            if connection is not None:
                connection.abort()
            else:
                sock.close()


@lru_cache(1)
def _host_key(seed: bytes) -> asyncssh.SSHKey:
    key = Ed25519PrivateKey.from_private_bytes(seed)
    return asyncssh.import_private_key(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))


async def _preamble(sock: socket.socket) -> str | None:
    """Return the session in Prime's preamble, or None without one; leaves the rest unread."""
    loop = asyncio.get_running_loop()
    line = b""
    while not line.endswith(b"\n"):
        # Byte by byte: the SSH protocol starts right after the line, and must find its first byte unread.
        byte = await loop.sock_recv(sock, 1) if line or await _announced(sock) else b""
        if not byte:
            return None
        line += byte
        if len(line) > _LINE or not line.startswith(_PREAMBLE[: len(line)]):
            raise ValueError("neither an SSH connection nor a preamble")
    return line[len(_PREAMBLE) : -1].decode("latin-1").strip()


async def _announced(sock: socket.socket) -> bool:
    """Return whether a preamble follows; the SSH protocol itself begins with an S."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(sock, lambda: readable.done() or readable.set_result(None))
    try:
        await readable
    finally:
        loop.remove_reader(sock)
    return sock.recv(1, socket.MSG_PEEK) == _PREAMBLE[:1]


class _Server(asyncssh.SSHServer):
    """One connection, which may reach only its session's sandbox."""

    def __init__(self, named: str | None, *, sessions: SshSessions, routes: Routes, pool: HttpPool) -> None:
        self._named = named
        self._sessions = sessions
        self._routes = routes
        self._pool = pool
        self._connection: asyncssh.SSHServerConnection
        self._session: SshSession | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn

    def connection_lost(self, exc: Exception | None) -> None:
        if self._session is not None:
            self._session.connections.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        session = await self._sessions.found(username)
        if (
            session is None
            or not self._sessions.is_open(session)
            or self._named not in (None, session.id)
            or not hmac.compare_digest(key.get_fingerprint(), session.fingerprint)
        ):
            return False
        # The shell needs the route at once.
        await self._routes.wait_ready(session.sandbox_id, _APPEAR)
        return True

    def auth_completed(self) -> None:
        session = self._sessions.find(self._connection.get_extra_info("username"))
        if session is None:  # deleted after its key was verified
            self._connection.abort()
            return
        self._session = session
        session.connections.add(self._connection)

    def session_requested(self) -> Shell | bool:
        route = self._route()
        return Shell(pool=self._pool, route=route) if route else False

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Callable[..., Awaitable[None]] | bool:
        """Forward a port (`ssh -L`) of the sandbox; the gateway's own network stays closed."""
        route = self._route()
        if route is None or dest_host not in _LOOPBACK:
            return False

        async def carry(reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]) -> None:
            try:
                tunnel = await open_tunnel(pool=self._pool, route=route, port=dest_port)
            except PoolError:
                writer.close()
                return
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(_up(reader, tunnel))
                    both.create_task(_down(tunnel, writer))
            except* (OSError, PoolError, asyncssh.Error):
                pass  # one side failed: close both
            finally:
                tunnel.close()
                writer.close()

        return carry

    def _route(self) -> Route | None:
        session = self._session
        route = self._routes.find(session.sandbox_id) if session else None
        if route is None or route.status is not Status.RUNNING:
            return None
        self._routes.touched(route.sandbox_id)
        return route


async def _up(reader: asyncssh.SSHReader[bytes], tunnel: Any) -> None:
    while data := await reader.read(_PIECE):
        tunnel.write(data)
        await tunnel.drain()
    tunnel.write_eof()


async def _down(tunnel: Any, writer: asyncssh.SSHWriter[bytes]) -> None:
    while data := await tunnel.read():
        writer.write(data)
        await writer.drain()
    writer.write_eof()
