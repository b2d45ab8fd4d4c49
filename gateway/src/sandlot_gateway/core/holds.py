"""What creates hold: each a slot, from its grant until its claim is answered.

A create waits in between: for other gateways, for its image, for its sidecar. Meanwhile reports may take the slot from it,
and another create may be granted the same slot. The hold of the first one then moves nothing, and keeps why it has no slot.
"""

from __future__ import annotations

from collections.abc import Callable

from sandlot_contract.ids import InstanceId, SandboxId

from .instances import Instance
from .reuse import Binding
from .slot import Generation, Hold, Loss, Phase, Slot


class Holds:
    """The holds of one ledger, see `Slots`. `slots`: the ledger's; `move`: moves one to a phase.

    A method returns None or False when the hold has no slot any more. Then nothing has changed, and no work is left.
    """

    def __init__(self, slots: dict[InstanceId, Slot], *, move: Callable[..., None]) -> None:
        self._slots = slots
        self._move = move

    def begin(self, slot: Slot) -> Hold:
        """Move a slot to CLAIMING for a create."""
        self._move(slot, Phase.CLAIMING)
        slot.hold = Hold(slot.instance)
        return slot.hold

    def claim(self, hold: Hold, sandbox_id: SandboxId, *, tenant: str) -> Generation | None:
        """Begin the claim: the caller asks the sidecar to accept this owner next."""
        if hold.taken is not None:
            self._end(hold)
            return None
        slot = self._slots.get(hold.instance.id)
        if slot is None or slot.hold is not hold or hold.claim is not None:
            return None
        slot.sandbox_id = sandbox_id
        hold.claim = Generation(slot.instance, slot.generation, sandbox_id, slot.binding.used_by(tenant))
        return hold.claim

    def accepted(self, hold: Hold) -> Loss | None:
        """Move to OWNED after the sidecar accepted, or return how the claim ended before this answer."""
        slot, claim = self._end(hold), hold.claim
        if slot is None or claim is None:
            assert hold.taken is not None, "a hold ends once"
            return hold.taken
        self._move(slot, Phase.OWNED, sandbox_id=claim.sandbox_id, binding=claim.binding)
        return None

    def unanswered(self, hold: Hold) -> bool:
        """Move to ENDING, and keep the hold: the sidecar may have accepted the owner, and is asked to end or claimed again.

        Whatever is heard of its end from now on is the claim's, not the sandbox's. `asked_again` or `failed` follows.
        """
        slot = self._end(hold)
        if slot is None or hold.claim is None:
            return False
        self._move(slot, Phase.ENDING, sandbox_id=hold.claim.sandbox_id)
        slot.hold = hold
        return True

    def asked_again(self, hold: Hold) -> bool:
        """Move from ENDING back to CLAIMING: the sidecar has the claim, and keeps it."""
        slot = self._slots.get(hold.instance.id)
        if slot is None or slot.hold is not hold or hold.taken is not None or hold.claim is None:
            return False
        slot.hold = None
        self._move(slot, Phase.CLAIMING, sandbox_id=hold.claim.sandbox_id)
        slot.hold = hold
        return True

    def outdone(self, hold: Hold) -> bool:
        """Move to UNREPORTED: another sandbox owns the slot, or it has been reset."""
        return self._leave(hold, Phase.UNREPORTED) is not None

    def failed(self, hold: Hold) -> bool:
        """Move to ENDING: the sidecar may have accepted the owner, or can accept none.

        Return whether the caller has to remove the instance, which it also has to if it was lost since `unanswered`.
        """
        slot = self._slots.get(hold.instance.id)
        unanswered = slot is not None and slot.hold is hold and slot.phase is Phase.ENDING
        sandbox_id = hold.claim.sandbox_id if hold.claim is not None else None
        return self._leave(hold, Phase.ENDING, sandbox_id=sandbox_id) is not None or unanswered

    def put_back(self, hold: Hold, *, binding: Binding | None = None) -> Instance | None:
        """Move to UNREPORTED, for the next create or `wait`: this create does not own the slot.

        `binding`: its sidecar rejected the claim because it is bound to another tenant.
        """
        slot = self._leave(hold, Phase.UNREPORTED, binding=binding)
        return slot.instance if slot is not None else None

    def _leave(
        self,
        hold: Hold,
        phase: Phase,
        *,
        sandbox_id: SandboxId | None = None,
        binding: Binding | None = None,
    ) -> Slot | None:
        slot = self._end(hold)
        if slot is not None:
            self._move(slot, phase, sandbox_id=sandbox_id, binding=binding)
        return slot

    def _end(self, hold: Hold) -> Slot | None:
        """End the hold and return its slot, or None if it has none; forget one that was lost meanwhile."""
        slot = self._slots.get(hold.instance.id)
        if slot is None or slot.hold is not hold:
            return None
        slot.hold = None
        if hold.taken is not None:
            del self._slots[hold.instance.id]
            return None
        return slot
