"""Finds the sandbox that serves a client: the one of its id, or the one that continues that one after a pause."""

from __future__ import annotations

import asyncio
import logging

from sandlot_contract.ids import SandboxId

from sandlot_gateway.core.gateways import OtherGateways
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.tasks import Tasks

from .pauses import PAUSED

_log = logging.getLogger(__name__)


class Serving:
    def __init__(self, directory: Directory, *, others: OtherGateways | None) -> None:
        self._directory = directory
        self._others = others
        self._tasks = Tasks()
        # By tenant: the question to the others that is under way, and the one that is asked after it.
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._next: dict[str, asyncio.Task[None]] = {}

    async def close(self) -> None:
        await self._tasks.close()

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
            await self._learn(self._others, tenant)
            found = self._directory.current(sandbox_id, tenant)
        return found

    async def _learn(self, others: OtherGateways, tenant: str) -> None:
        """Ask the others. All requests that come while a question is under way share the one after it.

        So a page that goes on asking for a paused sandbox makes one question at a time. The one under way could miss
        what has happened before such a request.
        """
        question = self._next.get(tenant)
        if question is None:
            question = self._tasks.spawn(self._ask(others, tenant, after=self._asked.get(tenant)))
            self._next[tenant] = question
        await asyncio.wait([question])  # which goes on for the others if this request is cancelled

    async def _ask(self, others: OtherGateways, tenant: str, *, after: asyncio.Task[None] | None) -> None:
        try:
            if after is not None:
                await asyncio.wait([after])
        finally:
            self._asked[tenant] = self._next.pop(tenant)
        try:
            await others.learn_claims(tenant)
        except Exception:
            _log.exception("cannot ask the other gateways for sandboxes", extra={"tenant": tenant})
        finally:
            del self._asked[tenant]

    def owner(self, sandbox_id: SandboxId) -> str | None:
        """Return the tenant of a sandbox that this gateway knows, also by the id of the one that it continues."""
        route, current = self._directory.find(sandbox_id), self._directory.serving(sandbox_id)
        return route.tenant if route is not None else current and current.tenant
