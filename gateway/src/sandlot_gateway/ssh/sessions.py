"""Manages SSH sessions, each of one key for one sandbox, and the listener for them."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from sandlot_contract.ids import SandboxId

from ..core.backend import BackendError
from ..data.pool import HttpPool
from ..data.routes import Routes
from ..tokens import Tokens

MAX_PER_SANDBOX = 64
_PATIENCE = 2.0  # seconds to wait for a session of another gateway, which takes some 30 ms


class SshError(Exception):
    """Raised when a session cannot be created; `field` is the argument at fault, None if the gateway is."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class NotInstalled(SshError):
    """Raised when the gateway lacks the package for SSH."""


@dataclass(slots=True, eq=False)
class SshSession:
    """A session; `id` is the user name, and only the owner of the key with this fingerprint may log in."""

    id: str
    sandbox_id: SandboxId
    tenant: str
    fingerprint: str  # of the public key, in the format of `ssh-keygen -l`
    ttl: int  # seconds
    expires_at: float  # on the clock of `Tokens.now`; no connection may begin after it
    connections: set[Any] = field(default_factory=set)  # asyncssh.SSHServerConnection, at this gateway


class Listener(Protocol):
    """Accepts the connections of sessions that `SshSessions` knows."""

    @property
    def port(self) -> int: ...

    def fingerprint(self, public_key: str) -> str | None: ...

    async def open(self, host: str, port: int) -> None: ...

    async def close(self) -> None: ...


class Shared(Protocol):
    """The sessions that several gateways share."""

    def subscribe(self, told: Callable[[SandboxId, list[SshSession]], None]) -> None:
        """Call `told` with all sessions of a sandbox each time that they may have changed."""

    async def put(self, session: SshSession) -> None: ...

    async def take(self, session: SshSession) -> None: ...


class SshSessions:
    """All sessions. Connections end with this process.

    Without `shared`, sessions do too, and the listener starts with the first one. With it, every gateway accepts
    the sessions of all, and so listens from the start.
    """

    def __init__(
        self,
        *,
        routes: Routes,
        pool: HttpPool,
        tokens: Tokens,
        host: str,
        port: int,
        shared: Shared | None = None,
    ) -> None:
        self._routes = routes
        self._pool = pool
        self._tokens = tokens
        self._host = host
        self._port = port
        self._shared = shared
        self._all: dict[str, SshSession] = {}
        self._unconfirmed: set[str] = set()  # stored by this gateway, not yet reported back
        self._removed: dict[str, SandboxId] = {}  # id -> sandbox: a late report must not restore one of these
        self._awaited: dict[str, asyncio.Event] = {}
        self._listener: Listener | None = None
        self._lock = asyncio.Lock()
        if shared is not None:
            shared.subscribe(self._told)

    @property
    def port(self) -> int:
        assert self._listener is not None, "no session was created"
        return self._listener.port

    async def start(self) -> None:
        """Start listening if sessions are shared. Raises BackendError."""
        if self._shared is not None:
            try:
                await self._listening()
            except SshError as error:
                raise BackendError(str(error)) from error

    async def add(self, sandbox_id: SandboxId, tenant: str, *, public_key: str, ttl: int) -> SshSession:
        """Create a session. Raises SshError, and BackendError if it cannot be shared with other gateways."""
        listener = await self._listening()
        fingerprint = listener.fingerprint(public_key)
        if fingerprint is None:
            raise SshError("public_key: must be one public key as in authorized_keys", field="public_key")
        await self._make_room(sandbox_id)
        session = SshSession(
            id=self._tokens.ssh_session(secrets.token_hex(Tokens.NONCE // 2)),
            sandbox_id=sandbox_id,
            tenant=tenant,
            fingerprint=fingerprint,
            ttl=ttl,
            expires_at=self._tokens.now() + ttl,
        )
        self._all[session.id] = session
        if self._shared is not None:
            self._unconfirmed.add(session.id)
            try:
                await self._shared.put(session)
            except BaseException:
                self._drop(session)
                raise
        return session

    async def found(self, session_id: str) -> SshSession | None:
        """Find a session; wait for one that another gateway has just created."""
        known = self._all.get(session_id)
        if known is not None or self._shared is None or session_id in self._removed:
            return known
        if self._tokens.ssh_key(session_id) is None:
            return None
        event = self._awaited.setdefault(session_id, asyncio.Event())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await event.wait()
        if self._awaited.get(session_id) is event:
            del self._awaited[session_id]
        return self._all.get(session_id)

    def is_open(self, session: SshSession) -> bool:
        """Return whether connections may begin."""
        return self._tokens.now() < session.expires_at

    def find(self, session_id: str) -> SshSession | None:
        return self._all.get(session_id)

    async def remove(self, session: SshSession) -> None:
        """Delete a session and close its connections. Raises BackendError if other gateways cannot be notified."""
        if self._shared is not None:
            await self._shared.take(session)
            self._removed[session.id] = session.sandbox_id
        self._drop(session)

    def sandbox_ended(self, sandbox_id: SandboxId) -> None:
        for session in self._of(sandbox_id):
            self._drop(session)
        for session_id in [each for each, owner in self._removed.items() if owner == sandbox_id]:
            del self._removed[session_id]

    async def close(self) -> None:
        for session in list(self._all.values()):
            self._drop(session)
        if self._listener is not None:
            await self._listener.close()

    def _of(self, sandbox_id: SandboxId) -> list[SshSession]:
        return [session for session in self._all.values() if session.sandbox_id == sandbox_id]

    async def _make_room(self, sandbox_id: SandboxId) -> None:
        """Remove expired sessions without connections if there are too many sessions. Raises SshError."""
        known = self._of(sandbox_id)
        if len(known) < MAX_PER_SANDBOX:
            return
        over = [session for session in known if not self.is_open(session) and not session.connections]
        if not over:
            raise SshError(f"a sandbox has at most {MAX_PER_SANDBOX} SSH sessions: delete one first")
        for session in over:
            await self.remove(session)

    def _told(self, sandbox_id: SandboxId, sessions: list[SshSession]) -> None:
        """Apply a report of all sessions that gateways have made for a sandbox."""
        ids = {session.id for session in sessions}
        for session in self._of(sandbox_id):
            if session.id not in ids and session.id not in self._unconfirmed:
                self._drop(session)
        for session in sessions:
            self._unconfirmed.discard(session.id)
            if session.id in self._all or session.id in self._removed:
                continue
            self._all[session.id] = session
            event = self._awaited.pop(session.id, None)
            if event is not None:
                event.set()

    def _drop(self, session: SshSession) -> None:
        self._all.pop(session.id, None)
        self._unconfirmed.discard(session.id)
        for connection in list(session.connections):
            connection.abort()

    async def _listening(self) -> Listener:
        async with self._lock:
            if self._listener is None:
                try:
                    # Takes half a second and 10 MiB, which a gateway without SSH should not spend.
                    module = await asyncio.to_thread(importlib.import_module, "sandlot_gateway.ssh.listener")
                except ModuleNotFoundError as error:
                    if error.name != "asyncssh":
                        raise
                    raise NotInstalled(
                        "SSH sessions need the package asyncssh: install sandlot-gateway[ssh]"
                    ) from error
                listener: Listener = module.Listener(
                    sessions=self,
                    routes=self._routes,
                    pool=self._pool,
                    host_key=self._tokens.ssh_host_key,
                )
                try:
                    await listener.open(self._host, self._port)
                except OSError as error:
                    raise SshError(
                        f"cannot listen on {self._host} port {self._port}: {error}; choose another --ssh-port"
                    ) from error
                self._listener = listener
                return listener
            return self._listener
