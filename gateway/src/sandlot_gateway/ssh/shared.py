"""Shares SSH sessions between gateways: stores their keys' fingerprints, not their ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from sandlot_contract.ids import SandboxId

from ..core.gateways import Notes
from ..data.pool import HttpPool
from ..data.routes import Routes
from ..notes import follow
from ..settings import Settings
from ..tokens import Tokens
from .sessions import SshSession, SshSessions

_PREFIX = "ssh-"  # of the notes' keys, to tell them from exposures


class _Kept(msgspec.Struct, frozen=True):
    tenant: str
    fingerprint: str
    ttl: int
    expires_at: float
    key: str | None = None  # the id of the master key that the id derives from; None: the only one


class SharedSessions:
    """Derives ids from nonces with the gateways' common key: write access to notes gives no access to sandboxes."""

    def __init__(self, notes: Notes, *, tokens: Tokens) -> None:
        self._notes = notes
        self._tokens = tokens

    def subscribe(self, told: Callable[[SandboxId, list[SshSession]], None]) -> None:
        """Call `told` with all sessions of a sandbox each time that its notes change."""
        follow(self._notes, read=self._session, told=told)

    async def put(self, session: SshSession) -> None:
        """Store a session. Raises BackendError."""
        kept = _Kept(
            tenant=session.tenant,
            fingerprint=session.fingerprint,
            ttl=session.ttl,
            expires_at=session.expires_at,
            key=self._tokens.ssh_key(session.id),
        )
        await self._notes.put(session.sandbox_id, self._key(session), msgspec.to_builtins(kept), port=None)

    async def take(self, session: SshSession) -> None:
        """Remove a stored session. Raises BackendError."""
        await self._notes.take(session.sandbox_id, self._key(session), port=None)

    def _key(self, session: SshSession) -> str:
        return f"{_PREFIX}{self._tokens.ssh_nonce(session.id)}"

    def _session(self, sandbox_id: SandboxId, key: str, document: Any) -> SshSession | None:
        if not key.startswith(_PREFIX):
            return None
        try:
            kept = msgspec.convert(document, _Kept)
        except msgspec.ValidationError:
            return None
        if kept.key is not None and kept.key not in self._tokens.keys:
            return None
        return SshSession(
            id=self._tokens.ssh_session(key.removeprefix(_PREFIX), kept.key),
            sandbox_id=sandbox_id,
            tenant=kept.tenant,
            fingerprint=kept.fingerprint,
            ttl=kept.ttl,
            expires_at=kept.expires_at,
        )


def sessions_of(
    settings: Settings, *, notes: Notes | None, routes: Routes, pool: HttpPool, tokens: Tokens
) -> SshSessions | None:
    """Return the sessions of a gateway with these settings; None for one of several without a port for them."""
    if notes is not None and not settings.ssh_port:
        return None
    return SshSessions(
        routes=routes,
        pool=pool,
        tokens=tokens,
        host=settings.host,
        port=settings.ssh_port,
        shared=None if notes is None else SharedSessions(notes, tokens=tokens),
    )
