"""Ends sandboxes, whatever the cause: records the end once, wakes waiting callers, retires the slot."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Protocol

from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.statuses import Status
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.backend import Backend
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.owners import Claim, RecordedEnd
from sandlot_gateway.core.slot import Loss, Phase
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.sidecars import Sidecars

from .claims import Claimer
from .orphans import Orphans
from .pending import PendingStore
from .retiring import Retirer
from .supply import Supply
from .unanswered_ends import UnansweredEnds

_log = logging.getLogger(__name__)


class Observer(Protocol):
    """Counts creates and ends; see control/counters.py."""

    def created(self, sandbox: Sandbox, *, seconds: float) -> None: ...

    def ended(self, sandbox: Sandbox) -> None: ...


class Ends:
    """The single place that ends sandboxes. `orphan_grace` in seconds, see orphans.py."""

    def __init__(
        self,
        *,
        directory: Directory,
        supply: Supply,
        claimer: Claimer,
        sidecars: Sidecars,
        backend: Backend,
        pending: PendingStore,
        observer: Observer,
        orphan_grace: float,
    ) -> None:
        self._directory = directory
        self._supply = supply
        self._slots = supply.slots
        self._claimer = claimer
        self._backend = backend
        self._pending = pending
        self._observer = observer
        self._retirer = Retirer(backend=backend, sidecars=sidecars, supply=supply)
        self.unanswered = UnansweredEnds(
            supply=supply,
            backend=backend,
            retirer=self._retirer,
            record=lambda sandbox, loss: self.record(
                sandbox, verdict=loss.verdict, message=loss.message, exit_code=loss.exit_code, heard=True
            ),
        )
        self._unconfirmed: dict[InstanceId, Sandbox] = {}  # instance id -> sandbox of before the restart
        self.orphans = Orphans(
            grace=orphan_grace,
            delete=lambda sandbox, why: self.delete(sandbox, message=why),
            directory=directory,
            backend=backend,
            sidecars=sidecars,
        )

    def delete(
        self, sandbox: Sandbox, *, verdict: str = SandboxVerdict.DELETED, message: str | None = None
    ) -> bool:
        """Record the end now and clean up in the background; return False if it had ended before."""
        was_pending = sandbox.status is Status.PENDING
        if not self.record(sandbox, verdict=verdict, message=message):
            return False
        if was_pending:
            # One that has an instance is restoring files; that task retires the slot.
            self._claimer.cancel(sandbox.id)
        else:
            self.retire(sandbox.instance_id, sandbox.id, verdict=verdict)
        return True

    def withdraw(self, sandbox: Sandbox, *, message: str, at: float) -> None:
        """End a create of which no sidecar has heard, as if it had not been requested. `at`: in Unix seconds."""
        self._directory.drop(sandbox)
        self._backend.pending_create_ended(sandbox.id, verdict=SandboxVerdict.DELETED, message=message)
        sandbox.finish(SandboxVerdict.DELETED, at=at, message=message)
        self.orphans.ended(sandbox.id)
        self._claimer.cancel(sandbox.id)

    async def known_to_others(self, sandbox_ids: Collection[SandboxId], *, timeout: float) -> None:
        """Wait, `timeout` seconds at most, until no other gateway can go on with these ended sandboxes.

        That is when their sidecars have ended, or else when other gateways can read their ends in the records. Those
        that answer have then been told the ends, too: a caller that asks one of them next learns of them.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        ended = await self._retirer.retired(sandbox_ids, timeout=timeout)
        untold = [sandbox_id for sandbox_id in sandbox_ids if sandbox_id not in ended]
        if untold:
            await self._backend.ends_written(untold, timeout=max(until - loop.time(), 0.0))
        if self._backend.others is not None:
            await self._backend.others.ends_told(sandbox_ids, timeout=max(until - loop.time(), 0.0))

    def record(
        self,
        sandbox: Sandbox,
        *,
        verdict: str,
        message: str | None,
        exit_code: int | None = None,
        heard: bool = False,
        of_instance: bool = False,
    ) -> bool:
        """Record the end without touching the instance; return False if it had ended before.

        `of_instance`: of an instance that this gateway does not have. Its sandbox may have another one by now, whose
        record a write would end.
        """
        if not self._directory.end(sandbox, verdict=verdict, message=message, exit_code=exit_code):
            return False
        self.orphans.ended(sandbox.id)
        self._pending.remove(sandbox.id)
        self._observer.ended(sandbox)
        if sandbox.instance_id is not None:
            end = Loss(verdict, message, exit_code)
            self._backend.ended(sandbox.instance_id, end, claim=sandbox.ownership(), heard=heard)
        elif not of_instance:
            self._backend.pending_create_ended(sandbox.id, verdict=verdict, message=message)
        _log.info("a sandbox ended", extra={"sandbox": sandbox.id, "verdict": verdict, "why": message})
        return True

    def retire(self, instance_id: InstanceId | None, sandbox_id: SandboxId, *, verdict: str) -> None:
        """Retire the instance if this sandbox owns it."""
        ended = self._slots.end(instance_id, sandbox_id) if instance_id is not None else None
        if ended is not None:
            self._retirer.retire(ended, verdict=verdict)

    def gone(
        self, instance_id: InstanceId, loss: Loss, *, heard: bool = False, claim: Claim | None = None
    ) -> None:
        """Handle an instance that ended by itself or died: record its sandbox's end and free its capacity.

        `heard`: its sidecar reported it. `claim`: of its sandbox as reported, if this gateway does not have that or waits
        for the answer to its claim.
        """
        slot = self._supply.lost(instance_id, loss)
        if claim is not None and slot is not None and slot.hold and slot.sandbox_id == claim.sandbox_id:
            awaited = self._directory.get(claim.sandbox_id)
            if awaited is not None and awaited.live:
                self.unanswered.reported(awaited, loss, instance_id, claimed_at=claim.at)
                return
            claim = None  # it was withdrawn meanwhile
        owner = slot.sandbox_id if slot is not None and slot.phase is Phase.OWNED else None
        sandbox = self._directory.get(owner) if owner is not None else None
        sandbox = sandbox or self._unconfirmed_again(instance_id)
        if sandbox is None:
            self._backend.ended(instance_id, loss, claim=claim, heard=heard)
        elif sandbox.instance_id == instance_id and loss.verdict == SandboxVerdict.GIVEN_BACK:
            claim = sandbox.ownership()
            self._unlearn(sandbox)
            self._backend.ended(instance_id, loss, claim=claim, heard=heard)
        elif sandbox.instance_id == instance_id:
            self.record(
                sandbox,
                verdict=loss.verdict,
                message=loss.message,
                exit_code=loss.exit_code,
                heard=heard,
            )
        if slot is None or slot.phase is not Phase.ENDING:
            given_back = loss.verdict == SandboxVerdict.GIVEN_BACK
            self._retirer.destroy(instance_id, given_back=given_back)

    def _unlearn(self, sandbox: Sandbox) -> None:
        """Forget a claim that its own gateway gave up: the sandbox is pending again there."""
        if sandbox.pending_elsewhere:
            self._directory.pending_again(sandbox)
        else:
            self._directory.drop(sandbox)
            self.orphans.ended(sandbox.id)

    def over_elsewhere(self, sandbox_id: SandboxId, instance_id: InstanceId) -> None:
        """Record that another gateway ended it: its slot has been reset to a later generation."""
        sandbox = self._directory.get(sandbox_id)
        if sandbox is not None and sandbox.instance_id == instance_id:
            text = "it was ended by another gateway"
            self.record(sandbox, verdict=SandboxVerdict.DELETED, message=text, heard=True)

    def generation_ended(
        self, instance_id: InstanceId, generation: int, end: RecordedEnd, *, retire: bool
    ) -> bool:
        """Handle `Events.generation_ended`; return False if the sandbox does not own the slot here."""
        slot = self._slots.get(instance_id)
        if slot is None or slot.phase is not Phase.OWNED:
            return False
        if (slot.generation, slot.sandbox_id) != (generation, end.sandbox_id):
            return False
        sandbox = self._directory.get(end.sandbox_id)
        if sandbox is not None and sandbox.instance_id == instance_id:
            self.record(
                sandbox, verdict=end.verdict, message=end.message, exit_code=end.exit_code, heard=True
            )
        if retire:
            self.retire(instance_id, end.sandbox_id, verdict=end.verdict)
        else:
            self._slots.released(instance_id)
        return True

    def give_back(self, instance: Instance, sandbox_id: SandboxId, *, only_unused: bool = False) -> None:
        """Remove an instance that this sandbox failed to claim, see `Retirer.give_back`."""
        self._retirer.give_back(instance, sandbox_id, only_unused=only_unused)

    def discard(self, instance: Instance, *, owner: SandboxId) -> None:
        """Remove an instance while this sandbox owns it, whose end the caller records."""
        self._retirer.discard(instance, owner=owner)

    def unreadable(self, instance: Instance, *, owner: SandboxId | None = None) -> None:
        """Remove an instance whose state cannot be read, and record the end of the sandbox that has it here.

        `owner`: as far as the state names it. Without one that this gateway knows, another gateway's sandbox may own the
        instance, which then stays.
        """
        owner = owner or self._slots.owner(instance.id)
        if owner is None:
            self._retirer.discard_unknown(instance)
            return
        sandbox = self._directory.get(owner)
        if sandbox is not None and sandbox.instance_id == instance.id:
            text = "the state that its sidecar reports cannot be read; do the versions differ?"
            self.record(sandbox, verdict=SandboxVerdict.SANDBOX_LOST, message=text)
        elif not self._backend.single_gateway:
            return
        self._retirer.discard(instance, owner=owner)

    # Sandboxes from before a restart.

    def expect(self, sandbox: Sandbox) -> None:
        """Note a sandbox that ran before the restart, until its sidecar confirms it."""
        if sandbox.instance_id is not None:
            self._unconfirmed[sandbox.instance_id] = sandbox

    def confirmed(self, instance_id: InstanceId) -> None:
        """Drop the note: the sidecar has reported its current owner."""
        self._unconfirmed.pop(instance_id, None)

    def end_unconfirmed(self) -> None:
        """End the noted sandboxes that no sidecar confirmed."""
        for instance_id in list(self._unconfirmed):
            sandbox = self._unconfirmed_again(instance_id)
            if sandbox is not None:
                text = "its sidecar was gone when the gateway came back"
                self.record(sandbox, verdict=SandboxVerdict.SIDECAR_LOST, message=text)

    def _unconfirmed_again(self, instance_id: InstanceId) -> Sandbox | None:
        sandbox = self._unconfirmed.pop(instance_id, None)
        if sandbox is None or self._directory.get(sandbox.id) is not None:
            return None
        self._directory.add(sandbox)
        return sandbox

    async def close(self, *, timeout: float) -> int:
        """Wait up to `timeout` seconds for cleanups, then cancel the rest; return their number."""
        await self.orphans.close()
        return await self._retirer.close(timeout=timeout)
