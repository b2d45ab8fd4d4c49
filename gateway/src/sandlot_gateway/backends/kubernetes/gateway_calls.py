"""The backend's calls about other gateways: what these may have, what they are told, and what they can read."""

from __future__ import annotations

from collections.abc import Iterable

from sandlot_contract.ids import SandboxId

from ...core.owners import PendingCreate
from ...core.slot import Loss
from .discovery import ClaimDiscovery
from .records import Records
from .settings import KubernetesSettings


class GatewayCalls:
    """A base of the backend, which sets the attributes."""

    _discovery: ClaimDiscovery
    _records: Records
    _settings: KubernetesSettings

    def sought(self, sandbox_id: SandboxId) -> None:
        self._discovery.sought(sandbox_id)

    def may_have(self, sandbox_id: SandboxId) -> bool:
        return self._discovery.may_have(sandbox_id)

    def missed(self, new: bool) -> None:
        self._discovery.missed(new)

    def told(self, news: bytes) -> bool:
        return self._discovery.told(news)

    async def share_pending_create(self, pending_create: PendingCreate) -> None:
        await self._records.pending_creates.make(pending_create, timeout=self._settings.pending_create_wait)

    def pending_create_ended(self, sandbox_id: SandboxId, *, verdict: str, message: str | None) -> None:
        self._records.pending_creates.end(sandbox_id, self._records.ending(Loss(verdict, message)))

    async def ends_written(self, sandbox_ids: Iterable[SandboxId], *, timeout: float) -> None:
        await self._records.ends_written(set(sandbox_ids), timeout=timeout)
