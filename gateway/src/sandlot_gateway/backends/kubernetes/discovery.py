"""Finds sandboxes of other gateways that have no record yet, by polling unowned sidecars."""

from __future__ import annotations

import asyncio

from sandlot_contract.ids import SandboxId

from ...core.owners import KeyAnswer, KeyQuestion
from ...tasks import Tasks
from .peers import Peers
from .view import View


class ClaimDiscovery:
    def __init__(self, view: View, *, peers: Peers | None, look_pause: float) -> None:
        """`look_pause`: minimum seconds between two polls of all unowned sidecars."""
        self._view = view
        self._peers = peers
        self._look_pause = look_pause
        self._look_again_at = 0.0  # on the loop's clock
        self._looking: asyncio.TimerHandle | None = None
        self._tasks = Tasks()

    async def close(self) -> None:
        await self._tasks.close()
        if self._looking is not None:
            self._looking.cancel()

    def sought(self, sandbox_id: SandboxId) -> None:
        """Look for a sandbox, see `Backend.sought`."""
        if self._peers is not None:
            self._tasks.spawn(self._seek(self._peers, sandbox_id))

    def missed(self, new: bool) -> None:
        """Poll all unowned sidecars, see `Backend.missed`: without an API server only they know their owners."""
        if self._looking is not None or (not new and self._view.watches.failure is None):
            return
        loop = asyncio.get_running_loop()
        # Postponed, never skipped: each missing sandbox triggers this once.
        self._looking = loop.call_at(max(loop.time(), self._look_again_at), self._look_at_all)

    async def holder_of_key(self, question: KeyQuestion) -> KeyAnswer:
        """Ask the other gateways, see `OtherGateways.holder_of_key`."""
        assert self._peers is not None
        return await self._peers.holder_of_key(question, look=self._learn_claims)

    async def _learn_claims(self) -> None:
        """Poll all unowned sidecars after a gateway died, to find the claims that it had not recorded."""
        self._look_at_all()
        await self._view.states.settle(timeout=1.0)

    async def _seek(self, peers: Peers, sandbox_id: SandboxId) -> None:
        instance_id = await peers.holder(sandbox_id)
        seen = self._view.instances.get(instance_id) if instance_id is not None else None
        if seen is not None and self._view.owner(seen.instance.id) is None:
            self._view.states.ask(seen.instance)

    def _look_at_all(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        self._look_again_at = asyncio.get_running_loop().time() + self._look_pause
        for seen in self._view.instances:
            if self._view.owner(seen.instance.id) is None:
                self._view.states.ask(seen.instance)
