"""The calls that the API makes: create a sandbox, wait for it, reset it; and the parts that serve them."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from sandlot_contract.new_ids import new_sandbox_id
from sandlot_contract.statuses import Status
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.backend import Backend
from sandlot_gateway.core.group_turns import GroupTurns
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.directory import Directory
from sandlot_gateway.keys import Tenant
from sandlot_gateway.quotas import Quotas
from sandlot_gateway.sandboxes import Sandbox, Spec
from sandlot_gateway.sidecars import ClaimOutcome, SidecarError, Sidecars, document
from sandlot_gateway.tokens import Tokens

from .admission import Admission
from .adoption import Adoption
from .bringup import BringUp
from .claims import Claimer
from .ends import Ends, Observer
from .errors import ResetCode, ResetFailed
from .following import Following
from .group_members import GroupMembers
from .group_places import GroupPlaces
from .groups import Groups
from .open_creates import OpenCreates
from .pending import PendingStore
from .supply import Supply
from .trouble import Pools

_log = logging.getLogger(__name__)


class Lifecycle:
    """One per gateway. `orphan_grace` in seconds, see orphans.py; `ran`, `restore` as in bringup.py, `queued` as in
    adoption.py.
    """

    def __init__(
        self,
        *,
        directory: Directory,
        supply: Supply,
        sidecars: Sidecars,
        backend: Backend,
        tokens: Tokens,
        pending: PendingStore,
        observer: Observer,
        quotas: Quotas | None = None,
        claim_counted: Callable[[ClaimOutcome], None] = lambda outcome: None,
        counted_by: str = "",
        orphan_grace: float = 60.0,
        max_waiting: int = 2000,
        ran: Callable[[Sandbox], None] = lambda sandbox: None,
        queued: Callable[[Sandbox], None] = lambda sandbox: None,
        restore: Callable[[Sandbox, Instance], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory
        self._sidecars = sidecars
        self._backend = backend
        self._pending = pending
        self._queued = queued
        self._clock = clock
        quotas = Quotas() if quotas is None else quotas  # without entries of single tenants it is false
        self.admission = Admission(quotas, holdings=directory.holdings)
        alone = backend.single_gateway
        places = GroupPlaces(
            supply,
            GroupTurns(
                alone=alone, chance=random.random, schedule=supply.schedule, outranked=supply.outranked
            ),
        )
        self.claimer = Claimer(
            supply=supply,
            groups=places,
            sidecars=sidecars,
            tokens=tokens,
            discard=lambda instance, sandbox_id, only_unused: self.ends.give_back(
                instance, sandbox_id, only_unused=only_unused
            ),
            images=backend if backend.lays_images else None,
            counted=claim_counted,
            counted_by=counted_by,
            alone=alone,
        )
        self.ends = Ends(
            directory=directory,
            supply=supply,
            claimer=self.claimer,
            sidecars=sidecars,
            backend=backend,
            pending=pending,
            observer=observer,
            orphan_grace=orphan_grace,
        )
        self.creates = OpenCreates()
        self.bringup = BringUp(
            creates=self.creates,
            directory=directory,
            claimer=self.claimer,
            backend=backend,
            pending=pending,
            ends=self.ends,
            observer=observer,
            ran=ran,
            refused=lambda sandbox: self.admission.refused(sandbox.tenant),
            lost=lambda sandbox, secrets, lost, losses: self.following.lost(
                sandbox, secrets=secrets, lost=lost, losses=losses
            ),
            secrets=backend.secrets,
            restore=restore,
            clock=clock,
        )
        self.following = Following(
            creates=self.creates,
            directory=directory,
            backend=backend,
            bringup=self.bringup,
            ends=self.ends,
            asked=self._asked_elsewhere,
            waits=lambda sandbox: self.groups.waits(sandbox),
        )
        members = GroupMembers(
            places=places,
            admission=self.admission,
            directory=directory,
            claimer=self.claimer,
            bringup=self.bringup,
            following=self.following,
            ends=self.ends,
            max_waiting=max_waiting,
            clock=clock,
        )
        self.groups = Groups(
            members=members,
            places=places,
            admission=self.admission,
            directory=directory,
            claimer=self.claimer,
            following=self.following,
            ends=self.ends,
            alone=alone,
            grace=orphan_grace,
            clock=clock,
        )
        self.adoption = Adoption(
            creates=self.creates,
            directory=directory,
            backend=backend,
            tokens=tokens,
            pending=pending,
            bringup=self.bringup,
            following=self.following,
            ends=self.ends,
            queued=queued,
            clock=clock,
        )

    def _asked_elsewhere(self, sandbox: Sandbox) -> None:
        self.ends.orphans.asked_elsewhere(sandbox)
        self.groups.asked_elsewhere(sandbox)

    def create(self, spec: Spec, *, secrets: dict[str, str], tenant: Tenant) -> Sandbox:
        """Begin a sandbox, or return the one that this idempotency key made. Does not wait.

        Raises QuotaReached; when nothing warm fits, QueueFull if the line is full, CannotStart if no start can be.
        """
        if spec.key is not None:
            known = self._directory.by_key(tenant.name, spec.key)
            if known is not None:
                if known.live:
                    self.ends.orphans.asked(known)
                self.following.follow(known, spec=spec, secrets=secrets)
                return known
        self.admission.check(tenant, spec)
        now = self._clock()
        sandbox = Sandbox(
            id=new_sandbox_id(now), tenant=tenant.name, spec=spec, created_at=now, updated_at=now
        )
        asks_others = spec.key is not None and self.following.keyed.has_others
        # A create that names secrets takes its place once they are read: a wrong name must hold no slot.
        ticket = None if spec.secret_refs else self.claimer.ticket(sandbox, at_once=not asks_others)
        self.admission.begun(tenant)  # from here on it exists
        self._directory.add(sandbox)
        self.ends.orphans.begun(sandbox)
        (self.following if asks_others else self.bringup).begin(sandbox, secrets=secrets, ticket=ticket)
        return sandbox

    async def wait(self, sandbox: Sandbox, *, timeout: float) -> Sandbox:
        """Wait up to `timeout` seconds for a PENDING sandbox to change. Raises BadRequestField, CannotStart, QueueFull.

        Return another gateway's sandbox if that one holds the same key; no caller has got this one's id then.
        """
        sandbox = await self.following.decided(sandbox)
        await self.bringup.placed(sandbox.id)  # before it may wait however full the queue is
        await self._directory.changed(sandbox.id, timeout=timeout)
        refusal = self.bringup.refusal(sandbox.id)
        if refusal is not None:
            raise refusal
        secrets = self.creates.secrets(sandbox.id)
        if sandbox.status is Status.PENDING and secrets is not None:
            try:
                self._pending.save(sandbox, secrets=secrets)
            except OSError as error:
                _log.error("a pending create is in memory only: %s", error, extra={"sandbox": sandbox.id})
        return sandbox

    async def hand_out(self, sandbox: Sandbox) -> None:
        """Let the other gateways know of a PENDING sandbox, and of its caller, before that gets the id.

        Raises SidecarError.
        """
        if sandbox.status is Status.PENDING and self.creates.secrets(sandbox.id) is not None:
            await self._backend.share_pending_create(sandbox.pending_create())
            if sandbox.status is Status.PENDING:
                self._queued(sandbox)
        await self.ends.orphans.hand_out(sandbox)

    def position(self, sandbox: Sandbox) -> int | None:
        return self.claimer.position(sandbox.id)

    def estimated_wait(self, sandbox: Sandbox) -> float | None:
        return self.claimer.estimated_wait(sandbox.id)

    def progress(self, sandbox: Sandbox, pools: Pools | None = None) -> str | None:
        unread = self.bringup.unread(sandbox.id)
        return unread or self.claimer.progress(sandbox.id) or self.claimer.trouble(sandbox, pools)

    def instance_of(self, sandbox: Sandbox) -> Instance | None:
        return None if sandbox.instance_id is None else self._backend.instance(sandbox.instance_id)

    async def reset(self, sandbox: Sandbox) -> dict[str, Any]:
        """Reset the sandbox with proof, keeping its owner, and return the sidecar's answer. Raises ResetFailed."""
        instance = self.instance_of(sandbox)
        if instance is None or sandbox.status is not Status.RUNNING:
            raise ResetFailed(
                "the sandbox is not running: only a RUNNING one can be reset", code=ResetCode.NOT_RUNNING
            )
        try:
            answer = await self._sidecars.reset(instance)
        except SidecarError as error:
            raise ResetFailed(str(error), code=ResetCode.UNREACHABLE) from error
        told = document(answer)
        if answer.status != 200:
            raise ResetFailed(str(told.get("message") or told.get("error")), code=str(told.get("error")))
        if not told.get("equal"):
            why = f"the reset could not be proven equal to fresh: {_differences(told)}"
            _log.warning("sandbox %s: %s", sandbox.id, why)
            self.ends.delete(sandbox, verdict=SandboxVerdict.RESET_FAILED, message=why)
            raise ResetFailed(why, code=ResetCode.NOT_EQUAL)
        sandbox.updated_at = self._clock()
        return told

    async def deleted_everywhere(self, *sandboxes: Sandbox) -> None:
        """Wait until no gateway can bring the deleted sandboxes back, `Backend.delete_wait` seconds at most."""
        if self._backend.single_gateway:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + self._backend.delete_wait
        sandbox_ids = {sandbox.id for sandbox in sandboxes}
        await self.creates.done_with(sandbox_ids, timeout=self._backend.delete_wait)
        await self.ends.known_to_others(sandbox_ids, timeout=max(until - loop.time(), 0.0))

    async def close(self, *, timeout: float) -> int:
        """Wait up to `timeout` seconds for cleanups, then cancel what is left; return how many that were."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        # Half of the time at most: a create that is cancelled may leave an instance to end.
        half = until - timeout / 2
        # First, since it begins bring-ups.
        await self.groups.close(timeout=0.0)
        cut = await self.following.close(timeout=timeout / 2)
        left = max(half - loop.time(), 0.0)
        cut += sum(await asyncio.gather(self.adoption.close(timeout=left), self.bringup.close(timeout=left)))
        return cut + await self.ends.close(timeout=max(until - loop.time(), 0.0))


def _differences(told: dict[str, Any]) -> str:
    """Return the differences that a reset's answer lists, or else its whole proof."""
    proof = told.get("proof")
    found = proof.get("differences") if isinstance(proof, dict) else None
    return "; ".join(map(str, found)) if isinstance(found, list) and found else str(proof)
