"""SSH sessions that several gateways let in: their keys' fingerprints are kept where all can read them, their ids are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from sandlot_contract.ids import SandboxId

from ..core.backend import Notes
from ..notes import follow
from ..tokens import Tokens
from .sessions import SshSession

_PREFIX = "ssh-"  # of the notes' keys: exposures have notes too


class _Kept(msgspec.Struct, frozen=True):
    tenant: str
    fingerprint: str
    ttl: int
    expires_at: float


class SharedSessions:
    """An id is made from a nonce by the gateways' common key: who can only write notes can let nobody in."""

    def __init__(self, notes: Notes, *, tokens: Tokens) -> None:
        self._notes = notes
        self._tokens = tokens

    def subscribe(self, told: Callable[[SandboxId, list[SshSession]], None]) -> None:
        """`told` hears of all sessions of a sandbox, each time that its notes have changed."""
        follow(self._notes, read=self._session, told=told)

    async def put(self, session: SshSession) -> None:
        """Raises BackendError."""
        kept = _Kept(
            tenant=session.tenant,
            fingerprint=session.fingerprint,
            ttl=session.ttl,
            expires_at=session.expires_at,
        )
        await self._notes.put(session.sandbox_id, self._key(session), msgspec.to_builtins(kept), port=None)

    async def take(self, session: SshSession) -> None:
        """Raises BackendError."""
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
        return SshSession(
            id=self._tokens.ssh_session(key.removeprefix(_PREFIX)),
            sandbox_id=sandbox_id,
            tenant=kept.tenant,
            fingerprint=kept.fingerprint,
            ttl=kept.ttl,
            expires_at=kept.expires_at,
        )
