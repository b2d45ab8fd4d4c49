"""The claim protocol: take an instance, ask its sidecar to accept the owner, try the next one if it does not."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sandlot_contract.ids import SandboxId

from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.slots import Generation, Loss
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.sidecars import ClaimAnswer, ClaimOutcome, Sidecars
from sandlot_gateway.tokens import Tokens

from .supply import Supply, Ticket

_log = logging.getLogger(__name__)


class ClaimRefused(Exception):
    """The claim is invalid, so that every sidecar would reject it. `field` is the claim's field."""

    def __init__(self, message: str, *, field: str | None) -> None:
        super().__init__(message)
        self.field = field


class NoSidecar(Exception):
    """Too many instances in a row failed during the claim."""


class LostAtOnce(Exception):
    """The instance was lost while its sidecar accepted the claim, as `loss` says."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(loss.message or loss.verdict)
        self.loss = loss


class Abandoned(Exception):
    """The sandbox was deleted before it had an instance."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The instance that accepted, its state document, and the sandbox's token for it."""

    instance: Instance
    state: dict[str, Any]
    token: str


class Claimer:
    """Calls `discard` for each instance that failed a claim, and `counted` with every outcome."""

    def __init__(
        self,
        *,
        supply: Supply,
        sidecars: Sidecars,
        tokens: Tokens,
        discard: Callable[[Instance, SandboxId], None],
        counted: Callable[[ClaimOutcome], None] = lambda outcome: None,
        max_failures: int = 20,
    ) -> None:
        self._supply = supply
        self._slots = supply.slots
        self._sidecars = sidecars
        self._tokens = tokens
        self._discard = discard
        self._counted = counted
        self._max_failures = max_failures
        self._tickets: dict[SandboxId, Ticket] = {}

    def ticket(
        self, sandbox: Sandbox, *, again: bool = False, patient: bool = False, at_once: bool = True
    ) -> Ticket:
        """Get a place in the queue; flags and errors as in `Supply.ticket`."""
        return self._supply.ticket(
            template=sandbox.spec.template(),
            tenant=sandbox.tenant,
            pool=sandbox.spec.pool,
            wanted=sandbox.pending_create,
            again=again,
            patient=patient,
            at_once=at_once,
        )

    def position(self, sandbox_id: SandboxId) -> int | None:
        """Return the sandbox's place in the queue, 1 for the next, or None if it does not wait."""
        ticket = self._tickets.get(sandbox_id)
        return ticket.position if ticket is not None else None

    def cancel(self, sandbox_id: SandboxId) -> None:
        """Make `claim` raise CancelledError or Abandoned, unless a sidecar is already being asked."""
        ticket = self._tickets.get(sandbox_id)
        if ticket is not None:
            ticket.cancel()

    async def claim(self, sandbox: Sandbox, *, secrets: dict[str, str], ticket: Ticket) -> Claimed:
        """Claim an instance and fill in the sandbox's instance and timings.

        Raises StartFailed, CannotStart, ClaimRefused, NoSidecar, LostAtOnce, Abandoned.

        Discards an instance whose answer was lost, because it may hold the claim; leaves it alone if another sandbox
        owns it.
        """
        failures = 0
        while True:
            self._tickets[sandbox.id] = ticket
            try:
                grant = await ticket.wait()
            finally:
                del self._tickets[sandbox.id]
            instance = grant.instance
            if not sandbox.live:
                self._supply.put_back(instance.id)
                raise Abandoned(sandbox.id)
            sandbox.pool_hit = grant.pool_hit
            sandbox.queued += grant.queued
            sandbox.start += grant.start
            claim = self._slots.claim(instance.id, sandbox.id)
            if claim is None:  # lost, or claimed by another gateway, since the grant
                ticket = self.ticket(sandbox, again=True)
                continue
            try:
                sandbox.generation = claim.generation
                # Strictly later than the last claim, whatever the clock says: of two claims the later one counts.
                sandbox.asked_at = max(time.time(), sandbox.asked_at + 0.001)
                token = self._tokens.sandbox(instance.id, claim.generation, sandbox.id)
                began = time.monotonic()
                answer = await self._sidecars.claim(
                    instance, _claim_body(sandbox, claim=claim, secrets=secrets, token=token)
                )
                sandbox.claim += time.monotonic() - began
                answer = _if_held(answer, sandbox)
            except BaseException:
                # Cancelled or failed: the sidecar may have accepted the claim.
                self._give_back(claim)
                raise
            self._counted(answer.outcome)
            if answer.outcome == ClaimOutcome.CLAIMED:
                loss = self._slots.accepted(claim)
                if loss is not None:
                    raise LostAtOnce(loss)
                sandbox.instance_id = instance.id
                sandbox.notes = [str(note) for note in answer.state.get("notes") or []]
                return Claimed(instance, answer.state, token)
            _log.info(
                "a claim went to another instance: %s",
                answer.message,
                extra={"instance": instance.id, "outcome": answer.outcome},
            )
            if answer.outcome == ClaimOutcome.REFUSED:
                self._supply.put_back(instance.id)
                raise ClaimRefused(answer.message, field=answer.field)
            if answer.outcome in (ClaimOutcome.TAKEN, ClaimOutcome.STALE):
                self._slots.outdone(claim)
            else:
                self._give_back(claim)
                failures += 1
                if failures >= self._max_failures:
                    raise NoSidecar(answer.message)
            ticket = self.ticket(sandbox, again=True)

    def _give_back(self, claim: Generation) -> None:
        if self._slots.failed(claim):
            self._discard(claim.instance, claim.sandbox_id)


def _if_held(answer: ClaimAnswer, sandbox: Sandbox) -> ClaimAnswer:
    """Reject the answer of an older sidecar that accepts a claim and ignores its egress policy."""
    if answer.outcome != ClaimOutcome.CLAIMED or sandbox.spec.egress is None or answer.state.get("egress"):
        return answer
    return ClaimAnswer(
        ClaimOutcome.GONE, answer.state, message="its sidecar is older, and holds no policy of a create"
    )


def _claim_body(
    sandbox: Sandbox, *, claim: Generation, secrets: dict[str, str], token: str
) -> dict[str, Any]:
    spec = sandbox.spec
    template = claim.instance.template
    return {
        "sandbox_id": sandbox.id,
        "token": token,
        "tenant": sandbox.tenant,
        "env": spec.env,
        "secrets": secrets,
        "limits": {
            "cpu": template.cpu,
            "memory": template.memory,
            "pids": template.pids,
            "disk": template.disk,
        },
        "network": spec.network,
        "egress": None if spec.egress is None else spec.egress.rules(),
        "timeout": spec.timeout,
        "idle_timeout": spec.idle_timeout,
        "workdir": spec.workdir,
        "start_command": spec.start_command,
        "meta": sandbox.meta(),
        "restore": spec.checkpoint is not None,
        "generation": claim.generation,
    }
