"""Finds sandboxes of other gateways that no record tells of yet: their sidecars are asked whose they are."""

from __future__ import annotations

import asyncio

from sandlot_contract.ids import SandboxId

from ...core.owners import KeyAnswer, KeyQuestion
from ...tasks import Tasks
from .peers import Peers
from .view import View


class ClaimDiscovery:
    def __init__(self, view: View, *, peers: Peers | None, look_pause: float) -> None:
        """`look_pause`: seconds between two questions to all who have no owner, for one that is missed."""
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
        """As `Backend.sought`."""
        if self._peers is not None:
            self._tasks.spawn(self._seek(self._peers, sandbox_id))

    def missed(self, new: bool) -> None:
        """Its record may not be written for a long time, without an API server: then only its sidecar can tell."""
        if self._looking is not None or (not new and self._view.watches.failure is None):
            return
        loop = asyncio.get_running_loop()
        # Not left out when another look was a moment ago: whoever misses one tells of it once.
        self._looking = loop.call_at(max(loop.time(), self._look_again_at), self._look_at_all)

    async def holder_of_key(self, question: KeyQuestion) -> KeyAnswer:
        """As `OtherGateways.holder_of_key`, of a gateway that has others."""
        assert self._peers is not None
        return await self._peers.holder_of_key(question, look=self._learn_claims)

    async def _learn_claims(self) -> None:
        """A gateway has died: what it has claimed, and nothing tells of yet, its sidecars do."""
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
