"""Shares exposures between gateways without storing the ids, which are their credentials."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import msgspec
from sandlot_contract.ids import SandboxId

from ..core.gateways import Notes
from ..notes import follow
from ..tokens import Tokens
from .exposure import Exposure, ExposureProtocol


class _Kept(msgspec.Struct, frozen=True):
    tenant: str
    port: int
    protocol: ExposureProtocol
    created_at: float
    name: str | None = None
    listen_port: int | None = None
    key: str | None = None  # the id of the master key that the id derives from; None: the only one


class SharedExposures:
    """Derives ids from nonces with the gateways' common key; only the nonce is stored, and gives no access."""

    def __init__(self, notes: Notes, *, tokens: Tokens, listen_host: str) -> None:
        self._notes = notes
        self._tokens = tokens
        self._listen_host = listen_host

    def new_id(self) -> str:
        return self._tokens.exposure(secrets.token_hex(Tokens.NONCE // 2))

    def may_exist(self, exposure_id: str) -> bool:
        """Return whether a gateway generated this id."""
        return self._tokens.exposure_key(exposure_id) is not None

    def subscribe(self, told: Callable[[SandboxId, list[Exposure]], None]) -> None:
        """Call `told` with all exposures of a sandbox each time that they change."""
        follow(self._notes, read=self._exposure, told=told)

    async def put(self, exposure: Exposure) -> bool:
        """Store an exposure; return False if another one has taken its port. Raises BackendError."""
        kept = _Kept(
            tenant=exposure.tenant,
            port=exposure.port,
            protocol=exposure.protocol,
            created_at=exposure.created_at,
            name=exposure.name,
            listen_port=exposure.listen_port,
            key=self._tokens.exposure_key(exposure.id),
        )
        nonce = exposure.id[: Tokens.NONCE]
        document = msgspec.to_builtins(kept)
        return await self._notes.put(exposure.sandbox_id, nonce, document, port=exposure.listen_port)

    async def take(self, exposure: Exposure) -> None:
        """Remove a stored exposure. Raises BackendError."""
        nonce = exposure.id[: Tokens.NONCE]
        await self._notes.take(exposure.sandbox_id, nonce, port=exposure.listen_port)

    def _exposure(self, sandbox_id: SandboxId, nonce: str, document: Any) -> Exposure | None:
        try:
            kept = msgspec.convert(document, _Kept)
        except msgspec.ValidationError:
            return None
        if len(nonce) != Tokens.NONCE:
            return None
        if kept.key is not None and kept.key not in self._tokens.keys:
            return None
        return Exposure(
            id=self._tokens.exposure(nonce, kept.key),
            sandbox_id=sandbox_id,
            tenant=kept.tenant,
            port=kept.port,
            name=kept.name,
            protocol=kept.protocol,
            created_at=kept.created_at,
            listen_host=None if kept.listen_port is None else self._listen_host,
            listen_port=kept.listen_port,
        )
