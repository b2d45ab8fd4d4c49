"""The ledger of slots: the only place that moves a slot from one phase to the next.

A slot runs one sandbox after the other: a pod, or a sidecar process on this machine. Each reset begins the slot's next
generation; a sandbox is a generation with an owner. Plain data: no I/O, no clock, no tasks.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.verdicts import SandboxVerdict

from .instances import Instance
from .ready import Rank, ReadyQueue

_REMEMBERED = 10_000  # lost slots; without it a late webhook would bring back an owner that has ended


class Phase(enum.Enum):
    """The phase of a slot's current generation, as far as this gateway knows."""

    # just started, just reset, or claimed by another gateway: the next webhook decides
    UNREPORTED = enum.auto()
    WARM = enum.auto()  # ready, without an owner
    CLAIMING = enum.auto()  # granted to a create, which is asking the sidecar
    OWNED = enum.auto()
    ENDING = enum.auto()  # its owner is done, or its claim failed: being reset or removed
    GONE = enum.auto()  # lost


class ReportOutcome(enum.Enum):
    """The result of one report from a sidecar."""

    NEWS = enum.auto()
    KNOWN = enum.auto()
    LATE = enum.auto()  # older than what the ledger has, or about this gateway's own work in progress
    IMPOSSIBLE = enum.auto()  # the report gives the generation a second owner


@dataclass(frozen=True, slots=True)
class Loss:
    """Why a slot is gone, which is also how its sandbox ended."""

    verdict: str
    message: str | None
    exit_code: int | None = None


@dataclass(slots=True)
class Slot:
    """One slot. `sandbox_id` is its owner, or in CLAIMING and ENDING the sandbox whose claim it is or was."""

    instance: Instance
    generation: int
    phase: Phase = Phase.UNREPORTED
    sandbox_id: SandboxId | None = None
    loss: Loss | None = None  # set when the slot was lost during a claim

    def is_of(self, claim: Generation) -> bool:
        own = (self.phase, self.generation, self.sandbox_id)
        return own == (Phase.CLAIMING, claim.generation, claim.sandbox_id)


@dataclass(frozen=True, slots=True)
class Generation:
    """A snapshot of a generation and its owner, taken when a claim or an end began; the slot may move on."""

    instance: Instance
    generation: int
    sandbox_id: SandboxId


class Slots:
    """All slots, by instance id. `rank` orders the WARM ones, see ready.py.

    A method returns None or False when the slot is no longer in the state that the caller assumes: it is lost, has
    another owner, or is at another generation. Then nothing has changed, and the caller has no work left.
    """

    def __init__(self, *, rank: Rank) -> None:
        self._slots: dict[InstanceId, Slot] = {}
        # recently lost: their late reports are ignored
        self._lost: OrderedDict[InstanceId, None] = OrderedDict()
        self._warm = ReadyQueue(rank=rank)

    @property
    def warm(self) -> ReadyQueue:
        """The WARM slots, read-only."""
        return self._warm

    def get(self, instance_id: InstanceId) -> Slot | None:
        return self._slots.get(instance_id)

    def phase(self, instance_id: InstanceId) -> Phase | None:
        """Return the slot's phase, or None when its sidecar has not reported yet or the ledger has forgotten it."""
        slot = self._slots.get(instance_id)
        if slot is not None:
            return slot.phase
        return Phase.GONE if instance_id in self._lost else None

    def owner(self, instance_id: InstanceId) -> SandboxId | None:
        """Return the id of the sandbox that owns the slot, or None."""
        slot = self._slots.get(instance_id)
        return slot.sandbox_id if slot is not None and slot.phase is Phase.OWNED else None

    # Reports from sidecars.

    def report_warm(self, instance: Instance, generation: int) -> ReportOutcome:
        """Record a report of an unowned generation. After NEWS the caller must `grant` the slot or let it `wait`."""
        if instance.id in self._lost:
            return ReportOutcome.LATE
        slot = self._slots.get(instance.id)
        if slot is None:
            self._slots[instance.id] = Slot(instance, generation)
            return ReportOutcome.NEWS
        if generation < slot.generation:
            return ReportOutcome.LATE
        if slot.phase is Phase.WARM:
            slot.generation = generation
            return ReportOutcome.KNOWN
        if slot.phase is not Phase.UNREPORTED and generation == slot.generation:
            return ReportOutcome.LATE
        # A later generation than the claim's or the owner's: another gateway has ended and reset it.
        self._move(slot, Phase.UNREPORTED, generation=generation)
        return ReportOutcome.NEWS

    def report_owned(
        self, instance: Instance, generation: int, sandbox_id: SandboxId | None
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
            slot.generation = generation
            return ReportOutcome.KNOWN
        if slot.phase is Phase.OWNED and generation == slot.generation:
            return ReportOutcome.IMPOSSIBLE
        self._move(slot, Phase.OWNED, generation=generation, sandbox_id=sandbox_id)
        return ReportOutcome.NEWS

    def lost(self, instance_id: InstanceId, loss: Loss) -> Slot | None:
        """Remove a lost slot and return it. A slot in CLAIMING stays until its claim is answered."""
        self._lost[instance_id] = None
        if len(self._lost) > _REMEMBERED:
            self._lost.popitem(last=False)
        slot = self._slots.get(instance_id)
        if slot is None:
            return None
        if slot.phase is Phase.CLAIMING:
            slot.loss = slot.loss or loss
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

    def grant(self, instance: Instance) -> None:
        """Move an UNREPORTED slot to CLAIMING for a create, which asks the sidecar next."""
        slot = self._slots[instance.id]
        assert slot.phase is Phase.UNREPORTED, slot.phase
        self._move(slot, Phase.CLAIMING)

    def take(
        self,
        template_key: str,
        *,
        pool: str | None = None,
        allowed: Callable[[str], bool] = lambda pool: True,
    ) -> Instance | None:
        """Move the WARM slot that `ReadyQueue.take` chooses to CLAIMING and return its instance."""
        instance = self._warm.take(template_key, pool=pool, allowed=allowed)
        if instance is not None:
            self._move(self._slots[instance.id], Phase.CLAIMING)
        return instance

    def shed(self, pool: str, *, keep: str | None) -> Instance | None:
        """Drop the WARM slot that `ReadyQueue.shed` chooses and return its instance for the backend to remove."""
        instance = self._warm.shed(pool, keep=keep)
        if instance is not None:
            del self._slots[instance.id]
        return instance

    # Claims.

    def claim(self, instance_id: InstanceId, sandbox_id: SandboxId) -> Generation | None:
        """Begin a claim: the caller asks the sidecar to accept this owner next."""
        slot = self._slots.get(instance_id)
        if slot is None or slot.phase is not Phase.CLAIMING or slot.sandbox_id is not None:
            return None
        if slot.loss is not None:
            del self._slots[instance_id]
            return None
        slot.sandbox_id = sandbox_id
        return Generation(slot.instance, slot.generation, sandbox_id)

    def accepted(self, claim: Generation) -> Loss | None:
        """Move to OWNED after the sidecar accepted, or return the loss if the slot is gone or has moved on since."""
        slot = self._slots.get(claim.instance.id)
        if slot is None or not slot.is_of(claim):
            return Loss(SandboxVerdict.SANDBOX_LOST, "the sandbox ended while its claim was answered")
        if slot.loss is not None:
            del self._slots[claim.instance.id]
            return slot.loss
        self._move(slot, Phase.OWNED, sandbox_id=claim.sandbox_id)
        return None

    def outdone(self, claim: Generation) -> bool:
        """Move to UNREPORTED: another sandbox owns the slot, or it has been reset."""
        return self._answered(claim, Phase.UNREPORTED)

    def failed(self, claim: Generation) -> bool:
        """Move to ENDING: the sidecar may have accepted the owner, or can accept none."""
        return self._answered(claim, Phase.ENDING, sandbox_id=claim.sandbox_id)

    def put_back(self, instance_id: InstanceId) -> Instance | None:
        """Move an unclaimed slot that its create returned to UNREPORTED, for the next create or `wait`."""
        slot = self._slots.get(instance_id)
        if slot is None or slot.phase is not Phase.CLAIMING:
            return None
        if slot.loss is not None:
            del self._slots[instance_id]
            return None
        self._move(slot, Phase.UNREPORTED)
        return slot.instance

    def _answered(self, claim: Generation, phase: Phase, *, sandbox_id: SandboxId | None = None) -> bool:
        slot = self._slots.get(claim.instance.id)
        if slot is None or not slot.is_of(claim):
            return False
        if slot.loss is not None:
            del self._slots[claim.instance.id]
            return False
        self._move(slot, phase, sandbox_id=sandbox_id)
        return True

    # Ends.

    def end(self, instance_id: InstanceId, sandbox_id: SandboxId) -> Generation | None:
        """Move to ENDING because this owner is done."""
        slot = self._slots.get(instance_id)
        if slot is None or slot.phase is not Phase.OWNED or slot.sandbox_id != sandbox_id:
            return None
        self._move(slot, Phase.ENDING, sandbox_id=sandbox_id)
        return Generation(slot.instance, slot.generation, sandbox_id)

    def discard(self, instance_id: InstanceId) -> bool:
        """Move to ENDING from any phase, so that no create gets the slot. Return False if it is ending already."""
        slot = self._slots.get(instance_id)
        if slot is None:
            return True
        if slot.phase is Phase.ENDING:
            return False
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
        if slot is not None and slot.phase is Phase.ENDING:
            del self._slots[instance_id]

    def _move(
        self, slot: Slot, phase: Phase, *, generation: int | None = None, sandbox_id: SandboxId | None = None
    ) -> None:
        if slot.phase is Phase.WARM:
            self._warm.discard(slot.instance.id)
        slot.phase, slot.sandbox_id = phase, sandbox_id
        if generation is not None:
            slot.generation, slot.loss = generation, None
        if phase is Phase.WARM:
            self._warm.put(slot.instance)
