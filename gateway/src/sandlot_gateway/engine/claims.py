"""The claim protocol: take an instance, ask its sidecar to accept the owner, try the next one if it does not."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sandlot_contract.ids import SandboxId

from sandlot_gateway.core.claim_images import ClaimImage, ClaimImages
from sandlot_gateway.core.instances import Instance, Laid
from sandlot_gateway.core.slot import Hold
from sandlot_gateway.core.supply_events import StartFailed
from sandlot_gateway.sandboxes import Sandbox, image_digest_in
from sandlot_gateway.sidecars import ClaimOutcome, Sidecars
from sandlot_gateway.tokens import Tokens
from sandlot_gateway.tracing.trace import stage

from .claim_asks import ask
from .claim_body import claim_body, if_held
from .claim_failures import Abandoned, ClaimRefused, LostAtOnce, NoSidecar
from .group_places import GroupPlaces
from .group_ticket import GroupTicket
from .images import NotHere, Patience, Preparation, has_own, judged, not_laid
from .start_command import resolve
from .supply import Supply
from .tickets import Need, Ticket
from .trouble import Pools

_log = logging.getLogger(__name__)

Place = Ticket | GroupTicket


@dataclass(frozen=True, slots=True)
class Claimed:
    """The instance that accepted, its state document, and the sandbox's token for it."""

    instance: Instance
    state: dict[str, Any]
    token: str


class Claimer:
    """Calls `discard` for each instance that failed a claim, and `counted` with every outcome.

    `discard`: with True if the instance keeps the sandbox in case it is used there, since no other is claimed for it.
    `images`: None where instances keep their images. `groups`: give members of groups their places. `counted_by`: as in
    Sandbox. `alone`: there is no other gateway.
    """

    def __init__(
        self,
        *,
        supply: Supply,
        sidecars: Sidecars,
        tokens: Tokens,
        discard: Callable[[Instance, SandboxId, bool], None],
        alone: bool,
        images: ClaimImages | None = None,
        groups: GroupPlaces | None = None,
        patience: Patience | None = None,
        counted: Callable[[ClaimOutcome], None] = lambda outcome: None,
        counted_by: str = "",
        max_failures: int = 20,
    ) -> None:
        self._supply = supply
        self._holds = supply.slots.holds
        self._sidecars = sidecars
        self._tokens = tokens
        self._discard = discard
        self._images = images
        self._groups = groups
        self._patience = patience
        self._counted = counted
        self._counted_by = counted_by
        self._alone = alone
        self._max_failures = max_failures
        self._tickets: dict[SandboxId, Place] = {}
        self._preparations: dict[SandboxId, Preparation] = {}

    def ticket(
        self,
        sandbox: Sandbox,
        *,
        again: bool = False,
        patient: bool = False,
        at_once: bool = True,
        avoid: frozenset[str] = frozenset(),
    ) -> Place:
        """Get a place in the queue; flags and errors as in `Supply.ticket`."""
        spec = sandbox.spec
        need = Need(
            template=spec.template(),
            tenant=sandbox.tenant,
            pool=spec.pool,
            wanted=sandbox.pending_create,
            avoid=avoid,
            lays_image=spec.run_image_command,
            run=spec.run or "",
        )
        if self._groups is not None and spec.group is not None:
            with_others = self._groups.ticket(sandbox.id, need, at_once=at_once)
            if with_others is not None:
                return with_others
        return self._supply.ticket(need, again=again, patient=patient, at_once=at_once)

    def position(self, sandbox_id: SandboxId) -> int | None:
        """Return the sandbox's place in the queue, 1 for the next, or None if it does not wait."""
        ticket = self._tickets.get(sandbox_id)
        return ticket.position if ticket is not None else None

    def estimated_wait(self, sandbox_id: SandboxId) -> float | None:
        """Return in how many seconds a waiting sandbox may have its instance; None if that is unknown."""
        ticket = self._tickets.get(sandbox_id)
        return ticket.estimated_wait if ticket is not None else None

    def progress(self, sandbox_id: SandboxId) -> str | None:
        """Return how far the sandbox's image is, see `Preparation.progress`; None if no claim is under way."""
        preparation = self._preparations.get(sandbox_id)
        return preparation.progress if preparation is not None else None

    def trouble(self, sandbox: Sandbox, pools: Pools | None = None) -> str | None:
        """Return why the sandbox may wait for a slot for long, or None if nothing is known or it does not wait."""
        ticket = self._tickets.get(sandbox.id)
        return ticket.trouble(pools) if ticket is not None else None

    def cancel(self, sandbox_id: SandboxId) -> None:
        """Make `claim` raise CancelledError or Abandoned, unless a sidecar is already being asked."""
        ticket = self._tickets.get(sandbox_id)
        if ticket is not None:
            ticket.cancel()
        preparation = self._preparations.get(sandbox_id)
        if preparation is not None:
            preparation.cancel()

    async def claim(self, sandbox: Sandbox, *, secrets: dict[str, str], ticket: Place) -> Claimed:
        """Claim an instance and fill in the sandbox's instance and timings.

        Raises StartFailed, CannotStart, ClaimRefused, NoSidecar, LostAtOnce, Abandoned.

        Discards an instance whose answer was lost, because it may hold the claim; leaves it alone if another sandbox
        owns it.
        """
        preparation = self._preparations[sandbox.id] = Preparation(
            self._images,
            sandbox.spec.image,
            tenant=sandbox.tenant,
            with_config=sandbox.spec.run_image_command,
            patience=self._patience,
        )
        try:
            return await self._claim(sandbox, secrets=secrets, ticket=ticket, preparation=preparation)
        finally:
            preparation.cancel()
            del self._preparations[sandbox.id]

    async def _claim(
        self, sandbox: Sandbox, *, secrets: dict[str, str], ticket: Place, preparation: Preparation
    ) -> Claimed:
        failures = 0
        while True:
            if not sandbox.live:  # its end came before this ticket, and cannot cancel it
                ticket.give_back()
                raise Abandoned(sandbox.id)
            self._tickets[sandbox.id] = ticket
            try:
                with stage("sandlot.queue") as step:
                    grant = await ticket.wait()
                    step.attributes["sandlot.warm"] = grant.pool_hit
                    step.add_last("sandlot.start", seconds=grant.start)
            finally:
                del self._tickets[sandbox.id]
            hold, instance = grant.hold, grant.hold.instance
            try:
                image = await preparation.prepared(instance)
            except NotHere as error:
                ticket = await self._once_prepared(sandbox, hold, error.awaits, preparation)
                continue
            except BaseException:
                self._supply.put_back(hold)
                raise
            without_command = resolve(sandbox, image)
            if without_command is not None or not sandbox.live:
                self._unlaid(instance, image)
                self._supply.put_back(hold)
                raise without_command or Abandoned(sandbox.id)
            sandbox.pool_hit = grant.pool_hit
            sandbox.queued += grant.queued
            sandbox.start += grant.start
            claim = self._holds.claim(hold, sandbox.id, tenant=sandbox.tenant)
            if claim is None:  # lost, or claimed by another gateway, since the grant
                self._unlaid(instance, image)
                ticket = self.ticket(sandbox, again=True, avoid=preparation.avoid)
                continue
            try:
                sandbox.generation = claim.generation
                # Strictly later than the last claim, whatever the clock says: of two claims the later one counts.
                sandbox.asked_at = max(time.time(), sandbox.asked_at + 0.001)
                sandbox.counted_by = self._counted_by
                token = self._tokens.sandbox(instance.id, claim.generation, sandbox.id, instance.key_id)
                began = time.monotonic()
                body = claim_body(sandbox, claim=claim, secrets=secrets, token=token, image=image)
                answer, lost = await ask(
                    self._sidecars, self._holds, hold, body, alone=self._alone, is_wanted=lambda: sandbox.live
                )
                sandbox.claim += time.monotonic() - began
                answer = judged(if_held(answer, sandbox), image)
                if image is None and self._images is not None:
                    answer = has_own(answer)
            except BaseException:
                # Cancelled or failed: the sidecar may have accepted the claim.
                self._unlaid(instance, image)
                self._give_back(hold, only_unused=sandbox.live and not self._alone)
                raise
            self._counted(answer.outcome)
            if answer.outcome == ClaimOutcome.CLAIMED:
                lost = self._holds.accepted(hold)
            if answer.outcome == ClaimOutcome.CLAIMED and lost is None:
                if image is not None and self._images is not None:
                    instance.refused = None
                    before, instance.laid = instance.laid, Laid(image.id, sandbox.spec.image)
                    self._images.image_laid(instance, before=before)
                sandbox.instance_id = instance.id
                sandbox.image_digest = image_digest_in(answer.state)
                sandbox.notes = [str(note) for note in answer.state.get("notes") or []]
                return Claimed(instance, answer.state, token)
            self._unlaid(instance, image)
            if lost is not None:
                self._holds.outdone(hold)  # given back, its end would be told as that of no sandbox
                raise LostAtOnce(lost, instance.id)
            _log.info(
                "a claim went to another instance: %s",
                answer.message,
                extra={"instance": instance.id, "outcome": answer.outcome},
            )
            if answer.outcome == ClaimOutcome.REFUSED:
                failed = not_laid(answer)
                if failed is not None and image is not None and answer.field == "image.lower":
                    ticket = self._refused(sandbox, hold, image.id, failed, preparation)
                    continue
                self._supply.put_back(hold)
                raise failed or ClaimRefused(answer.message, field=answer.field)
            if answer.outcome == ClaimOutcome.BOUND:
                self._supply.put_back(hold, binding=answer.binding)
            elif answer.outcome in (ClaimOutcome.TAKEN, ClaimOutcome.STALE):
                self._holds.outdone(hold)
            else:
                self._give_back(hold)
                failures += 1
                if failures >= self._max_failures:
                    raise NoSidecar(answer.message)
            if not sandbox.live:  # else an instance would be started for it
                raise Abandoned(sandbox.id)
            ticket = self.ticket(sandbox, again=True, avoid=preparation.avoid)

    async def _once_prepared(
        self, sandbox: Sandbox, hold: Hold, awaits: str | None, preparation: Preparation
    ) -> Place:
        """Give an instance back without the image, and get another place once it is worth while."""
        if not self._supply.put_back(hold, awaits=awaits):
            awaits = None
        try:
            await preparation.wait()
            return self.ticket(sandbox, again=True, avoid=preparation.avoid)
        finally:
            if awaits is not None:  # after the ticket, which comes before other creates
                self._supply.came_back(hold.instance.id, awaits)

    def _unlaid(self, instance: Instance, image: ClaimImage | None) -> None:
        """Release an image that was prepared for a claim which has not laid it, as far as known."""
        if image is not None and self._images is not None:
            self._images.image_unlaid(instance, image.id)

    def _refused(
        self,
        sandbox: Sandbox,
        hold: Hold,
        image_id: str,
        failed: StartFailed,
        preparation: Preparation,
    ) -> Place:
        """Get another place for a create whose root an instance could not build; end one that refused two images."""
        instance = hold.instance
        before, instance.refused = instance.refused, image_id
        try:
            preparation.refused(instance, failed)
            return self.ticket(sandbox, again=True, avoid=preparation.avoid)  # before this one is free again
        finally:
            if before in (None, image_id):
                self._supply.put_back(hold)
            else:
                self._give_back(hold)

    def _give_back(self, hold: Hold, *, only_unused: bool = False) -> None:
        if self._holds.failed(hold) and hold.claim is not None:
            self._discard(hold.instance, hold.claim.sandbox_id, only_unused)
