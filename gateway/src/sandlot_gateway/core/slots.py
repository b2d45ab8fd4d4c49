"""The ledger of slots: the only place that moves a slot from one phase to the next.

A slot runs one sandbox after the other: a pod, or a sidecar process on this machine. Each reset begins the slot's next
generation; a sandbox is a generation with an owner. Only one tenant's sandboxes use a slot. holds.py has the creates to
which slots are granted. No I/O, clock or tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.verdicts import SandboxVerdict

from .holds import Holds
from .instances import Instance, Kind, by_template
from .ready import Rank, ReadyQueue
from .ready_index import any_pool
from .reuse import UNBOUND, Binding
from .slot import Generation, Hold, Loss, Phase, ReportOutcome, Slot

# How a claim has ended, if it was accepted, whose slot was taken from it before the answer.
ENDED_ELSEWHERE = Loss(SandboxVerdict.DELETED, "it was ended by another gateway")
_ANOTHERS = Loss(SandboxVerdict.GIVEN_BACK, "its instance reported another owner")
_DISCARDED = Loss(SandboxVerdict.GIVEN_BACK, "its instance was discarded while it was claimed")
_REMEMBERED = 10_000  # lost slots; without it a late webhook would bring back an owner that has ended


class Slots:
    """All slots, by instance id. `rank` orders the WARM ones, see ready.py; those of one `kind` replace each other.

    A method returns None or False when the slot is no longer in the state that the caller assumes: it is lost, has
    another owner, or is at another generation. Then nothing has changed, and the caller has no work left.
    """

    def __init__(self, *, rank: Rank, kind: Kind = by_template) -> None:
        self.kind = kind
        self._slots: dict[InstanceId, Slot] = {}
        self.holds = Holds(self._slots, move=self._move)
        self._lost: dict[InstanceId, None] = {}  # the last ones: late reports of them are ignored
        self._warm = ReadyQueue(rank=rank, kind=kind)

    @property
    def warm(self) -> ReadyQueue:
        """The WARM slots, read-only."""
        return self._warm

    def get(self, instance_id: InstanceId) -> Slot | None:
        return self._slots.get(instance_id)

    def phase(self, instance_id: InstanceId) -> Phase | None:
        """Return the slot's phase, or None when its sidecar has not reported yet or the ledger has forgotten it."""
        slot = self._slots.get(instance_id)
        if slot is not None and (slot.hold is None or slot.hold.taken is None):
            return slot.phase
        return Phase.GONE if instance_id in self._lost else None  # also while a create still has a hold on it

    def phases(self) -> dict[str | None, Counter[Phase]]:
        """Count the slots of each pool by phase; those of None were started for one create."""
        found: dict[str | None, Counter[Phase]] = {}
        for slot in self._slots.values():
            found.setdefault(slot.instance.pool, Counter())[slot.phase] += 1
        return found

    def owner(self, instance_id: InstanceId) -> SandboxId | None:
        """Return the id of the sandbox that owns the slot, or None."""
        slot = self._slots.get(instance_id)
        return slot.sandbox_id if slot is not None and slot.phase is Phase.OWNED else None

    def bound_to(self, instance_id: InstanceId) -> str | None:
        """Return the only tenant that may own the slot, or None if any may."""
        slot = self._slots.get(instance_id)
        return slot.binding.tenant if slot is not None else None

    # Reports from sidecars.

    def report_warm(self, instance: Instance, generation: int, binding: Binding = UNBOUND) -> ReportOutcome:
        """Record a report of an unowned generation. After NEWS the caller must `grant` the slot or let it `wait`."""
        if instance.id in self._lost:
            return ReportOutcome.LATE
        slot = self._slots.get(instance.id)
        if slot is None:
            self._slots[instance.id] = Slot(instance, generation, binding=binding)
            return ReportOutcome.NEWS
        if generation < slot.generation:
            return ReportOutcome.LATE
        if slot.phase is Phase.WARM:
            if self._warm.is_outdated(instance):
                self._move(slot, Phase.UNREPORTED, generation=generation, binding=binding)
                return ReportOutcome.NEWS
            if generation > slot.generation:
                self._move(slot, Phase.WARM, generation=generation, binding=binding)
            return ReportOutcome.KNOWN
        if slot.phase is not Phase.UNREPORTED and generation == slot.generation:
            return ReportOutcome.LATE
        # A later generation than the claim's or the owner's: another gateway has ended and reset it.
        self._move(slot, Phase.UNREPORTED, generation=generation, binding=binding)
        return ReportOutcome.NEWS

    def report_owned(
        self,
        instance: Instance,
        generation: int,
        sandbox_id: SandboxId | None,
        binding: Binding = UNBOUND,
    ) -> ReportOutcome:
        """Record a report of an owner. After NEWS the sandbox owns the slot, even if the directory lacks it."""
        if instance.id in self._lost:
            return ReportOutcome.LATE
        slot = self._slots.setdefault(instance.id, Slot(instance, generation))
        if generation < slot.generation:
            return ReportOutcome.LATE
        if slot.sandbox_id is not None and slot.sandbox_id == sandbox_id:
            if slot.phase is not Phase.OWNED:
                # The answer to the claim says the same, or the report predates the end in progress.
                return ReportOutcome.LATE
            slot.generation, slot.binding = generation, binding
            return ReportOutcome.KNOWN
        if slot.phase is Phase.OWNED and generation == slot.generation:
            return ReportOutcome.IMPOSSIBLE
        self._move(slot, Phase.OWNED, generation=generation, sandbox_id=sandbox_id, binding=binding)
        return ReportOutcome.NEWS

    def overtaken(self, instance_id: InstanceId, generation: int) -> None:
        """Take a slot from the create that is claiming it: its sidecar has reported this later generation."""
        slot = self._slots.get(instance_id)
        if slot is not None and slot.hold is not None and slot.generation < generation:
            self._move(slot, Phase.UNREPORTED, generation=generation)

    def lost(self, instance_id: InstanceId, loss: Loss) -> Slot | None:
        """Remove a lost slot and return it. One that a create holds stays until its claim is over."""
        self._lost[instance_id] = None
        if len(self._lost) > _REMEMBERED:
            del self._lost[next(iter(self._lost))]
        slot = self._slots.get(instance_id)
        if slot is None:
            return None
        if slot.hold is not None:
            slot.hold.taken = slot.hold.taken or loss
        else:
            self._warm.discard(instance_id)
            del self._slots[instance_id]
        return slot

    # Creates that wait.

    def wait(self, instance: Instance) -> None:
        """Move an UNREPORTED slot that no create needs to WARM."""
        slot = self._slots[instance.id]
        assert slot.phase is Phase.UNREPORTED, slot.phase
        self._move(slot, Phase.WARM)

    def reoffer(self, instance_id: InstanceId) -> Instance | None:
        """Move a WARM slot to UNREPORTED, for a create that did not get it before."""
        if (slot := self._slots.get(instance_id)) is None or slot.phase is not Phase.WARM:
            return None
        self._move(slot, Phase.UNREPORTED)
        return slot.instance

    def grant(self, instance: Instance) -> Hold:
        """Move an UNREPORTED slot to CLAIMING for a create, which asks the sidecar next."""
        slot = self._slots[instance.id]
        assert slot.phase is Phase.UNREPORTED, slot.phase
        return self.holds.begin(slot)

    def take(
        self,
        kind: str,
        *,
        image: str | None = None,
        tenant: str | None = None,
        pool: str | None = None,
        allowed: Callable[[str], bool] = any_pool,
        nodes: Collection[str] = (),
        avoid: Collection[str] = (),
        held: Collection[InstanceId] = (),
        lays_image: bool = False,
    ) -> Hold | None:
        """Move the WARM slot that `ReadyQueue.take` chooses to CLAIMING and return the create's hold on it."""
        instance = self._warm.take(
            kind,
            image=image,
            tenant=tenant,
            pool=pool,
            allowed=allowed,
            nodes=nodes,
            avoid=avoid,
            held=held,
            lays_image=lays_image,
        )
        return self.holds.begin(self._slots[instance.id]) if instance is not None else None

    def evict(self, kind: str, *, tenant: str, allowed: Callable[[str], bool]) -> Instance | None:
        """Move the WARM slot that `ReadyQueue.evict` chooses to ENDING and return its instance."""
        instance = self._warm.evict(kind, tenant=tenant, allowed=allowed)
        if instance is not None:
            self._move(self._slots[instance.id], Phase.ENDING)
        return instance

    def shed(self, pool: str, *, keep: str | None) -> Instance | None:
        """Drop the WARM slot that `ReadyQueue.shed` chooses and return its instance for the backend to remove."""
        instance = self._warm.shed(pool, keep=keep)
        if instance is not None:
            del self._slots[instance.id]
        return instance

    # Ends.

    def end(self, instance_id: InstanceId, sandbox_id: SandboxId) -> Generation | None:
        """Move to ENDING because this owner is done."""
        slot = self._slots.get(instance_id)
        if slot is None or slot.phase is not Phase.OWNED or slot.sandbox_id != sandbox_id:
            return None
        self._move(slot, Phase.ENDING, sandbox_id=sandbox_id)
        return Generation(slot.instance, slot.generation, sandbox_id, slot.binding)

    def released(self, instance_id: InstanceId) -> None:
        """Move from OWNED to UNREPORTED: the owner was ended elsewhere, and the sidecar's next report decides."""
        if self.phase(instance_id) is Phase.OWNED:
            self._move(self._slots[instance_id], Phase.UNREPORTED)

    def discard(self, instance_id: InstanceId) -> bool:
        """Move to ENDING from any phase, so that no create gets the slot. Return False if it is ending already."""
        slot = self._slots.get(instance_id)
        if slot is None:
            return True
        if slot.phase is Phase.ENDING:
            return False
        if slot.hold is not None:
            slot.hold.taken = slot.hold.taken or _DISCARDED
        self._move(slot, Phase.ENDING, sandbox_id=slot.sandbox_id)
        return True

    def was_reset(self, instance_id: InstanceId, generation: int) -> None:
        """Begin the next generation as UNREPORTED, unless its own report came first."""
        slot = self._slots.get(instance_id)
        if slot is not None and slot.phase is Phase.ENDING and slot.generation == generation:
            self._move(slot, Phase.UNREPORTED, generation=generation + 1)

    def gone(self, instance_id: InstanceId) -> None:
        """Forget an ENDING slot: it is removed, or another sandbox owns it and a report will say so."""
        slot = self._slots.get(instance_id)
        # One that a create holds is of a later generation than the end that the caller has asked for.
        if slot is not None and slot.phase is Phase.ENDING and slot.hold is None:
            del self._slots[instance_id]

    def _move(
        self,
        slot: Slot,
        phase: Phase,
        *,
        generation: int | None = None,
        sandbox_id: SandboxId | None = None,
        binding: Binding | None = None,
    ) -> None:
        if slot.phase is Phase.WARM:
            self._warm.discard(slot.instance.id)
        if slot.hold is not None:
            # Only a gateway that ended the sandbox resets its slot.
            later = generation is not None and generation > slot.generation
            slot.hold.taken = slot.hold.taken or (ENDED_ELSEWHERE if later else _ANOTHERS)
            slot.hold = None
        slot.phase, slot.sandbox_id = phase, sandbox_id
        if generation is not None:
            slot.generation = generation
        if binding is not None:
            slot.binding = binding
        if phase is Phase.WARM:
            self._warm.put(slot.instance, bound_to=slot.binding.tenant)
