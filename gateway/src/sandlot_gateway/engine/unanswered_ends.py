"""Ends of instances that have accepted a sandbox before this gateway has the answer to its claim.

Other gateways may have heard of the claim and serve the sandbox's callers there, and are to say of it what this one says.
An end by the sandbox's own doing is the sandbox's: its record names the owner, since an instance that is removed as
unclaimed looks as if the sandbox had been deleted. A loss is the claim's alone as long as another instance may have the
sandbox, or get it: the instance is removed as one whose claim was given back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sandlot_contract.ids import InstanceId
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.backend import Backend
from sandlot_gateway.core.slot import Loss
from sandlot_gateway.core.slots import ENDED_ELSEWHERE
from sandlot_gateway.sandboxes import Sandbox

from .claim_failures import UNSAID
from .retiring import Retirer
from .supply import Supply


class UnansweredEnds:
    """`record` records a sandbox's end as its sidecar or its pod has told it, see `Ends.record`."""

    def __init__(
        self,
        *,
        supply: Supply,
        backend: Backend,
        retirer: Retirer,
        record: Callable[[Sandbox, Loss], bool],
    ) -> None:
        self._supply = supply
        self._backend = backend
        self._retirer = retirer
        self._record = record

    def reported(self, sandbox: Sandbox, loss: Loss, instance_id: InstanceId, *, claimed_at: float) -> None:
        """Handle the end that a sidecar reports while a create here waits for the answer to this sandbox's claim."""
        is_claims = loss.verdict in UNSAID
        if not is_claims:
            self._ended_in(instance_id, sandbox, loss, claimed_at=claimed_at)
        self._retirer.destroy(instance_id, given_back=is_claims)

    def looked_for(self, loss: Loss, instance_id: InstanceId) -> None:
        """Remove an instance that is lost, while others are asked for its sandbox. `lost` follows if none of them has it."""
        self._supply.lost(instance_id, loss)
        self._retirer.destroy(instance_id, given_back=True)

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

    def _ended_in(self, instance_id: InstanceId, sandbox: Sandbox, loss: Loss, *, claimed_at: float) -> None:
        sandbox.instance_id, sandbox.started_at = instance_id, claimed_at
        instance = self._backend.instance(instance_id)
        if instance is not None:  # the record of this claim takes the place of its pending create's
            self._backend.claimed(instance, sandbox.ownership(), ours=True)
        else:
            self._backend.pending_create_ended(sandbox.id, verdict=loss.verdict, message=loss.message)
        self._record(sandbox, loss)
