"""Finds sandboxes of other gateways that have no record: asks these gateways, and polls unowned sidecars."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from sandlot_contract.ids import SandboxId

from ...core.gateways import PeerEvents
from ...core.owners import KeyAnswer, KeyQuestion, RecordedEnd
from ...core.run_tally import RunCounts
from ...core.runs import RunId
from ...tasks import Tasks
from . import announcer as announcements
from .announcer import Announcer
from .doubts import Doubts
from .generation_ends import GenerationEnds
from .instances import SeenInstance, Source
from .peer_calls import Missing
from .peers import Peers
from .view import View

_POLL_PATIENCE = 3.0  # seconds for all unowned sidecars to be tried


class ClaimDiscovery:
    def __init__(
        self,
        view: View,
        *,
        peers: Peers | None,
        announcer: Announcer,
        generation_ends: GenerationEnds,
        look_pause: float,
    ) -> None:
        """`look_pause`: minimum seconds between two polls of all unowned sidecars."""
        self._view = view
        self._generation_ends = generation_ends
        self._peers = peers
        self._announcer = announcer
        self._look_pause = look_pause
        self._look_again_at = 0.0  # on the loop's clock
        self._looking: asyncio.TimerHandle | None = None
        self._looked = asyncio.Event()  # set at the next poll of all unowned sidecars
        self._doubts = Doubts(clock=lambda: asyncio.get_running_loop().time())
        self._tasks = Tasks()

    async def close(self) -> None:
        await self._tasks.close()
        if self._looking is not None:
            self._looking.cancel()

    def sought(self, sandbox_id: SandboxId) -> None:
        """Look for a sandbox, see `Backend.sought`."""
        if self._peers is not None:
            self._doubts.asked(sandbox_id)
            self._tasks.spawn(self._seek(self._peers, sandbox_id))

    def may_have(self, sandbox_id: SandboxId) -> bool:
        """Return whether another gateway may have a sandbox that was looked for, see `Backend.may_have`."""
        return self._doubts.may_exist(sandbox_id)

    def ended(self, seen: SeenInstance, owner: SandboxId) -> None:
        """Ask the other gateways how the owner of a reused pod that is over has ended: their news may have got lost."""
        if self._peers is not None:
            self._tasks.spawn(self._seek_end(self._peers, seen, owner))

    def missed(self, new: bool) -> None:
        """Poll all unowned sidecars, see `Backend.missed`: without an API server only they know their owners."""
        if new or self._view.watches.failure is not None:
            self._look_soon()

    def told(self, news: bytes) -> bool:
        """Apply another gateway's news, see `Backend.told`."""
        return announcements.apply(news, view=self._view, generation_ends=self._generation_ends)

    async def recover(self, *, timeout: float) -> None:
        """Learn at the start what an earlier gateway here had claimed last, `timeout` seconds at most.

        The others take what this gateway answers for all that it knows of these claims.
        """
        polled = self._tasks.spawn(self._look_for_last_claims())
        await asyncio.gather(
            asyncio.wait([polled], timeout=timeout), self._view.states.settle(timeout=timeout)
        )

    def asked_by(self, gateway: str) -> None:
        """Note that this gateway lives, see `OtherGateways.asked_by`."""
        assert self._peers is not None
        self._peers.asked_by(gateway)

    async def holder_of_key(self, question: KeyQuestion) -> KeyAnswer:
        """Ask the other gateways, see `OtherGateways.holder_of_key`."""
        assert self._peers is not None
        return await self._peers.holder_of_key(question, look=self._look_for_last_claims)

    def is_searching(self) -> bool:
        """Return whether a search is under way, see `OtherGateways.is_searching`."""
        assert self._peers is not None
        return self._peers.is_searching()

    async def ends_told(self, sandbox_ids: Iterable[SandboxId], *, timeout: float) -> None:
        """Wait for their announcement, see `OtherGateways.ends_told`."""
        await self._announcer.told(sandbox_ids, timeout=timeout)

    async def events(
        self, tenant: str, *, after: Mapping[str, str], since: Callable[[str], float]
    ) -> dict[str, PeerEvents | None]:
        """Ask the other gateways, see `OtherGateways.events`."""
        assert self._peers is not None
        return await self._peers.events(tenant, after=after, since=since)

    async def run_counts(self, tenant: str, run_id: RunId) -> list[RunCounts | None]:
        """Ask the other gateways, see `OtherGateways.run_counts`."""
        assert self._peers is not None
        return await self._peers.run_counts(tenant, run_id)

    async def learn_claims(self, tenant: str) -> None:
        """Ask the other gateways, and poll the sidecars that they name, see `OtherGateways.learn_claims`."""
        assert self._peers is not None
        claims = await self._peers.young_claims(tenant)
        polled = False
        for sandbox_id, instance_id in claims.items():
            seen = self._view.instances.get(instance_id)
            if seen is not None and not self._view.reporter.events.knows(sandbox_id):
                self._view.states.ask(seen.instance)
                polled = True
        if polled:
            await self._view.states.settle(timeout=1.0)

    async def _look_for_last_claims(self) -> None:
        """Poll sidecars after a gateway died, to find the claims that it had not recorded.

        Also owned ones whose pods are reused: it may have died before it told of a reset. An answer that was on its way
        before does not count: it may be older than the last claim.
        """
        await self._view.states.polled(
            seen.instance for seen in self._view.instances if self._may_be_claimed(seen)
        )

    def _may_be_claimed(self, seen: SeenInstance) -> bool:
        if seen.source is Source.DNS and not seen.reported and seen.node is None:
            return False  # its pod waits for a node, so that nobody has reached it
        reset = seen.reused and self._view.owner(seen.instance.id) is not None
        return reset or not self._view.knows_owner(seen.instance.id)

    async def _seek(self, peers: Peers, sandbox_id: SandboxId) -> None:
        found = await peers.whereabouts(sandbox_id)
        if isinstance(found, Missing):
            await self._not_found(sandbox_id, found)
            return
        self._doubts.exists(sandbox_id)  # until it is known here
        if isinstance(found, RecordedEnd):
            self._view.reporter.events.sandbox_ended_elsewhere(found, sought=True)
            return
        seen = self._view.instances.get(found)
        if seen is not None:
            # Also if it reported this owner: that was while its files were being restored.
            self._view.states.ask(seen.instance)

    async def _not_found(self, sandbox_id: SandboxId, missing: Missing) -> None:
        if missing is Missing.DENIED:
            self._doubts.denied(sandbox_id)
        elif missing is Missing.STARTING:
            self._doubts.exists(sandbox_id)
        elif self._doubts.asked(sandbox_id):
            self._look_soon()  # a gateway may have died before it recorded its claim
            if missing is Missing.DEAD:
                await self._looked.wait()
                if await self._view.states.settle(timeout=_POLL_PATIENCE):
                    self._doubts.settle(sandbox_id)

    async def _seek_end(self, peers: Peers, seen: SeenInstance, owner: SandboxId) -> None:
        found = await peers.end_of(owner)
        if found is not None:
            self._generation_ends.ended(seen.instance.id, seen.generation, found)

    def _look_soon(self) -> None:
        """Poll all unowned sidecars, as soon as the last such poll allows. Postponed, never skipped."""
        if self._looking is None:
            loop = asyncio.get_running_loop()
            self._looking = loop.call_at(max(loop.time(), self._look_again_at), self._look_at_all)

    def _look_at_all(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        self._look_again_at = asyncio.get_running_loop().time() + self._look_pause
        self._looked.set()
        self._looked = asyncio.Event()
        for seen in self._view.instances:
            if not self._view.knows_owner(seen.instance.id):
                self._view.states.ask(seen.instance)
