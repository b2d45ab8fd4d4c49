"""Finds the sandbox that serves a client: the one of its id, or the one that continues that one after a pause."""

from __future__ import annotations

from sandlot_contract.ids import SandboxId

from sandlot_gateway.core.gateways import OtherGateways
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox

from .pauses import PAUSED


class Serving:
    def __init__(self, directory: Directory, *, others: OtherGateways | None) -> None:
        self._directory = directory
        self._others = others

    async def find(self, sandbox_id: SandboxId, tenant: str) -> Sandbox | None:
        """Return the tenant's live sandbox for this id; None too if the id is of one that may only come to be known."""
        found = self._directory.current(sandbox_id, tenant)
        if found is not None or self._others is None or self._directory.may_come(sandbox_id):
            return found
        own = self._directory.get(sandbox_id)
        if own is not None and own.message != PAUSED:
            return None
        return await self.find_everywhere(sandbox_id, tenant)  # another gateway may have just continued it

    async def find_everywhere(self, sandbox_id: SandboxId, tenant: str) -> Sandbox | None:
        """Return the tenant's live sandbox for this id, also one that another gateway alone knows to be running."""
        found = self._directory.current(sandbox_id, tenant)
        if found is None and self._others is not None:
            await self._others.learn_claims(tenant)
            found = self._directory.current(sandbox_id, tenant)
        return found

    def owner(self, sandbox_id: SandboxId) -> str | None:
        """Return the tenant of a sandbox that this gateway knows, also by the id of the one that it continues."""
        route, current = self._directory.find(sandbox_id), self._directory.serving(sandbox_id)
        return route.tenant if route is not None else current and current.tenant
