"""Ends of sandboxes that an instance has accepted before this gateway has the answer to its claim.

Other gateways may have heard of the claim and serve the sandbox's callers there. Its end names the owner in the
instance's record: without one the instance is removed as unclaimed, which others take for the sandbox's delete.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sandlot_contract.ids import InstanceId
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.backend import Backend
from sandlot_gateway.core.owners import Claim
from sandlot_gateway.core.slot import Loss, Phase, Slot
from sandlot_gateway.core.slots import ENDED_ELSEWHERE
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox

from .claim_failures import UNSAID
from .retiring import Retirer
from .supply import Supply


class UnansweredEnds:
    """`record` records a sandbox's end as its sidecar or its pod has told it, see `Ends.record`."""

    def __init__(
        self,
        *,
        directory: Directory,
        supply: Supply,
        backend: Backend,
        retirer: Retirer,
        record: Callable[[Sandbox, Loss], bool],
    ) -> None:
        self._directory = directory
        self._supply = supply
        self._backend = backend
        self._retirer = retirer
        self._record = record

    def reported(self, slot: Slot, loss: Loss, claim: Claim | None) -> bool:
        """Record the end that a sidecar reports while a create here has the slot. `claim`: as the report names it.

        Return False if that is no end of the create's sandbox.
        """
        if claim is None or claim.sandbox_id != slot.sandbox_id:
            return False
        if slot.phase is Phase.ENDING and loss.verdict == SandboxVerdict.SANDBOX_LOST:
            return False  # an older sidecar's word for a claim that is given back
        sandbox = self._directory.get(claim.sandbox_id)
        if sandbox is None or not sandbox.live or loss.verdict in UNSAID:
            # Of the instance alone: another one may have the sandbox, see `Following.lost`.
            self._backend.ended(slot.instance.id, loss, claim=claim, heard=True)
        else:
            self._ended_in(slot.instance.id, sandbox, loss, claimed_at=claim.at)
        return True

    def lost(self, sandbox: Sandbox, loss: Loss, instance_id: InstanceId) -> None:
        """Record the end of a sandbox whose claim was lost, see `LostAtOnce`, and that no other instance has."""
        given_back = loss.verdict == SandboxVerdict.GIVEN_BACK  # which is no sandbox's end
        if given_back:
            self._record(sandbox, replace(loss, verdict=SandboxVerdict.START_FAILED))
        elif loss == ENDED_ELSEWHERE or not sandbox.live:  # the instance may be the next sandbox's
            self._record(sandbox, loss)
        else:
            self._supply.lost(instance_id, loss)
            self._ended_in(instance_id, sandbox, loss, claimed_at=sandbox.asked_at)
            self._retirer.destroy(instance_id, given_back=False)

    def instance_lost(self, sandbox: Sandbox, loss: Loss, instance_id: InstanceId) -> None:
        """Record the end of the instance alone: another one may have the sandbox by now."""
        if loss.verdict in UNSAID and self._backend.instance(instance_id) is not None:
            self._supply.lost(instance_id, loss)
            claim = replace(sandbox.ownership(), at=sandbox.asked_at)
            self._backend.ended(instance_id, loss, claim=claim, heard=True)
            self._retirer.destroy(instance_id, given_back=False)

    def _ended_in(self, instance_id: InstanceId, sandbox: Sandbox, loss: Loss, *, claimed_at: float) -> None:
        sandbox.instance_id, sandbox.started_at = instance_id, claimed_at
        instance = self._backend.instance(instance_id)
        if instance is not None:  # the record of this claim takes the place of its pending create's
            self._backend.claimed(instance, sandbox.ownership(), ours=True)
        else:
            self._backend.pending_create_ended(sandbox.id, verdict=loss.verdict, message=loss.message)
        self._record(sandbox, loss)
