"""Accepts SSH connections: Prime's line before the first byte of SSH, then the key, then shells and ports of a sandbox."""

from __future__ import annotations

import asyncio
import contextvars
import hmac
import logging
import socket
from collections.abc import Awaitable, Callable
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
# It logs every command, and what users type there is not for the gateway's log.
asyncssh.set_log_level(logging.WARNING)

MAX_CONNECTIONS = 512  # further ones are closed at once
_PREAMBLE = b"PRIME-SSH-SESSION "
_LINE = 128  # bytes of the preamble, at most
_LOGIN = 20.0  # seconds until somebody has to be let in
_APPEAR = 10.0  # of them for a sandbox that another gateway has made to be known here
_PIECE = 64 * 1024
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Listener:
    """One TCP port for all sandboxes; the user name says which session is meant."""

    def __init__(self, *, sessions: SshSessions, routes: Routes, pool: HttpPool, host_key: bytes) -> None:
        self._sessions = sessions
        self._routes = routes
        self._pool = pool
        key = Ed25519PrivateKey.from_private_bytes(host_key)
        self._host_key = asyncssh.import_private_key(
            key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        )
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._socket is not None
        return self._socket.getsockname()[1]

    @staticmethod
    def fingerprint(public_key: str) -> str | None:
        """None for what is no public key."""
        try:
            return asyncssh.import_public_key(public_key).get_fingerprint()
        except (asyncssh.KeyImportError, ValueError, RecursionError):
            return None

    async def open(self, host: str, port: int) -> None:
        """Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=128)
        self._socket.setblocking(False)
        # Else every line of the log would name the request that opened the port.
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
                log.warning("an SSH connection could not be accepted: %s", error)
                await asyncio.sleep(0.1)  # out of descriptors: the kernel would say so without end
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
                    server_host_keys=[self._host_key],
                    password_auth=False,
                    kbdint_auth=False,
                    host_based_auth=False,
                    gss_host=None,
                    # Both would make sockets on the gateway's machine.
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


async def _preamble(sock: socket.socket) -> str | None:
    """The session that Prime's line names, None without the line; what follows stays to be read."""
    loop = asyncio.get_running_loop()
    line = b""
    while not line.endswith(b"\n"):
        # Byte by byte: SSH begins right behind the line, and has to find its first byte there.
        byte = await loop.sock_recv(sock, 1) if line or await _announced(sock) else b""
        if not byte:
            return None
        line += byte
        if len(line) > _LINE or not line.startswith(_PREAMBLE[: len(line)]):
            raise ValueError("neither SSH nor the line before it")
    return line[len(_PREAMBLE) : -1].decode("latin-1").strip()


async def _announced(sock: socket.socket) -> bool:
    """Whether the first byte is the line's; SSH itself begins with an S."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(sock, lambda: readable.done() or readable.set_result(None))
    try:
        await readable
    finally:
        loop.remove_reader(sock)
    return sock.recv(1, socket.MSG_PEEK) == _PREAMBLE[:1]


class _Server(asyncssh.SSHServer):
    """One connection. It may reach the session's sandbox and nothing else."""

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
        # What follows asks for its route at once.
        await self._routes.wait_ready(session.sandbox_id, _APPEAR)
        return True

    def auth_completed(self) -> None:
        session = self._sessions.find(self._connection.get_extra_info("username"))
        if session is None:  # revoked between the proof of its key and now
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
        """A forwarded port (`ssh -L`): of the sandbox, since to connect from here would open the gateway's network."""
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
                pass  # one side broke: both are closed
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
