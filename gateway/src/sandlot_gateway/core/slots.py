"""Whose each slot is: every move of a slot from one phase to the next is decided here, and nowhere else.

A slot is where sandboxes run, one after the other: a pod, or a sidecar process of this machine. Each reset begins its
next generation; a sandbox is a generation that has an owner. Plain data: no I/O, no clock, no tasks.
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

_REMEMBERED = 10_000  # lost slots; a word of one that comes later would bring back an owner that has ended


class Phase(enum.Enum):
    """Of a slot's generation, as far as this gateway knows."""

    UNHEARD = enum.auto()  # started, or reset, or another gateway's: its sidecar's next word tells
    WARM = enum.auto()  # ready, and nobody's
    CLAIMING = enum.auto()  # given to a create, which asks its sidecar
    OWNED = enum.auto()
    ENDING = enum.auto()  # its owner is done, or its claim has failed: being reset or taken away
    GONE = enum.auto()  # lost, and no slot any more


class Heard(enum.Enum):
    """What a sidecar's word comes to."""

    NEWS = enum.auto()
    KNOWN = enum.auto()
    LATE = enum.auto()  # sent before what is known already, or about what this gateway is doing itself
    IMPOSSIBLE = enum.auto()  # a generation has two owners


@dataclass(frozen=True, slots=True)
class Loss:
    """Why a slot is gone, and how its sandbox has ended."""

    verdict: str
    message: str | None
    exit_code: int | None = None


@dataclass(slots=True)
class Slot:
    """`sandbox_id`: its owner; of one that is CLAIMING or ENDING, whose claim it is or was."""

    instance: Instance
    generation: int
    phase: Phase = Phase.UNHEARD
    sandbox_id: SandboxId | None = None
    loss: Loss | None = None  # of one that was lost while its claim was under way

    def is_of(self, claim: Generation) -> bool:
        return (self.phase, self.generation, self.sandbox_id) == (
            Phase.CLAIMING, claim.generation, claim.sandbox_id,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Generation:
    """Whose a slot's generation is, as it was when a claim or an end of it began: the slot itself may go on."""

    instance: Instance
    generation: int
    sandbox_id: SandboxId


class Slots:
    """By instance. `rank` orders those that are WARM, see ready.py.

    A method returns None or False where the slot is not (any more) as the caller has it: lost, another's, or of another
    generation. Then nothing has changed, and the caller has nothing to do about the slot.
    """

    def __init__(self, *, rank: Rank) -> None:
        self._slots: dict[InstanceId, Slot] = {}
        self._lost: OrderedDict[InstanceId, None] = (
            OrderedDict()
        )  # of late: no word of theirs counts any more
        self._warm = ReadyQueue(rank=rank)

    @property
    def warm(self) -> ReadyQueue:
        """Those that are WARM: to be counted and looked at, not to be changed."""
        return self._warm

    def get(self, instance_id: InstanceId) -> Slot | None:
        return self._slots.get(instance_id)

    def phase(self, instance_id: InstanceId) -> Phase | None:
        """None: its sidecar was not heard yet, or what was given up is forgotten."""
        slot = self._slots.get(instance_id)
        if slot is not None:
            return slot.phase
        return Phase.GONE if instance_id in self._lost else None

    def owner(self, instance_id: InstanceId) -> SandboxId | None:
        """The sandbox that owns it."""
        slot = self._slots.get(instance_id)
        return slot.sandbox_id if slot is not None and slot.phase is Phase.OWNED else None

    # What sidecars say.

    def heard_warm(self, instance: Instance, generation: int) -> Heard:
        """After NEWS it is for the caller to `grant` it, or to let it `wait`."""
        if instance.id in self._lost:
            return Heard.LATE
        slot = self._slots.get(instance.id)
        if slot is None:
            self._slots[instance.id] = Slot(instance, generation)
            return Heard.NEWS
        if generation < slot.generation:
            return Heard.LATE
        if slot.phase is Phase.WARM:
            slot.generation = generation
            return Heard.KNOWN
        if slot.phase is not Phase.UNHEARD and generation == slot.generation:
            return Heard.LATE
        # Of a later generation than that of a claim or an owner: another gateway has ended and reset it.
        self._move(slot, Phase.UNHEARD, generation=generation)
        return Heard.NEWS

    def heard_owned(self, instance: Instance, generation: int, sandbox_id: SandboxId | None) -> Heard:
        """After NEWS it is OWNED by this sandbox, which nobody here may have heard of yet."""
        if instance.id in self._lost:
            return Heard.LATE
        slot = self._slots.setdefault(instance.id, Slot(instance, generation))
        if generation < slot.generation:
            return Heard.LATE
        if slot.sandbox_id is not None and slot.sandbox_id == sandbox_id:
            if slot.phase is not Phase.OWNED:
                # The claim's answer says the same, or it is from before the end that is under way.
                return Heard.LATE
            slot.generation = generation
            return Heard.KNOWN
        if slot.phase is Phase.OWNED and generation == slot.generation:
            return Heard.IMPOSSIBLE
        self._move(slot, Phase.OWNED, generation=generation, sandbox_id=sandbox_id)
        return Heard.NEWS

    def lost(self, instance_id: InstanceId, loss: Loss) -> Slot | None:
        """It is gone, and this is how it was. One that is being claimed is kept until the claim is answered."""
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

    # Who waits for one.

    def wait(self, instance: Instance) -> None:
        """Nobody wants it now: WARM."""
        slot = self._slots[instance.id]
        assert slot.phase is Phase.UNHEARD, slot.phase
        self._move(slot, Phase.WARM)

    def grant(self, instance: Instance) -> None:
        """A create has it from now on, and is to ask its sidecar: CLAIMING."""
        slot = self._slots[instance.id]
        assert slot.phase is Phase.UNHEARD, slot.phase
        self._move(slot, Phase.CLAIMING)

    def take(
        self,
        template_key: str,
        *,
        pool: str | None = None,
        allowed: Callable[[str], bool] = lambda pool: True,
    ) -> Instance | None:
        """One that is WARM, as `ReadyQueue.take` chooses it, for a create: CLAIMING."""
        instance = self._warm.take(template_key, pool=pool, allowed=allowed)
        if instance is not None:
            self._move(self._slots[instance.id], Phase.CLAIMING)
        return instance

    def shed(self, pool: str, *, keep: str | None) -> Instance | None:
        """One that is WARM, as `ReadyQueue.shed` chooses it, for a backend that takes it away: gone."""
        instance = self._warm.shed(pool, keep=keep)
        if instance is not None:
            del self._slots[instance.id]
        return instance

    # Claims.

    def claim(self, instance_id: InstanceId, sandbox_id: SandboxId) -> Generation | None:
        """Its sidecar is about to be asked to take this owner."""
        slot = self._slots.get(instance_id)
        if slot is None or slot.phase is not Phase.CLAIMING or slot.sandbox_id is not None:
            return None
        if slot.loss is not None:
            del self._slots[instance_id]
            return None
        slot.sandbox_id = sandbox_id
        return Generation(slot.instance, slot.generation, sandbox_id)

    def accepted(self, claim: Generation) -> Loss | None:
        """Its sidecar has taken the owner: OWNED. Unless it was lost since, or has gone on without it: that is told."""
        slot = self._slots.get(claim.instance.id)
        if slot is None or not slot.is_of(claim):
            return Loss(SandboxVerdict.SANDBOX_LOST, "the sandbox ended while its claim was answered")
        if slot.loss is not None:
            del self._slots[claim.instance.id]
            return slot.loss
        self._move(slot, Phase.OWNED, sandbox_id=claim.sandbox_id)
        return None

    def outdone(self, claim: Generation) -> bool:
        """Another has it, or it has been reset: UNHEARD."""
        return self._answered(claim, Phase.UNHEARD)

    def failed(self, claim: Generation) -> bool:
        """Nobody knows whether its sidecar has taken the owner, or it never will: ENDING."""
        return self._answered(claim, Phase.ENDING, sandbox_id=claim.sandbox_id)

    def put_back(self, instance_id: InstanceId) -> Instance | None:
        """Its create does not want it any more, and its sidecar has no owner: to be granted to another, or to `wait`."""
        slot = self._slots.get(instance_id)
        if slot is None or slot.phase is not Phase.CLAIMING:
            return None
        if slot.loss is not None:
            del self._slots[instance_id]
            return None
        self._move(slot, Phase.UNHEARD)
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
        """Its owner is done: ENDING."""
        slot = self._slots.get(instance_id)
        if slot is None or slot.phase is not Phase.OWNED or slot.sandbox_id != sandbox_id:
            return None
        self._move(slot, Phase.ENDING, sandbox_id=sandbox_id)
        return Generation(slot.instance, slot.generation, sandbox_id)

    def discard(self, instance_id: InstanceId) -> bool:
        """Nobody shall have it (again), whatever it is: ENDING. False where that is under way."""
        slot = self._slots.get(instance_id)
        if slot is None:
            return True
        if slot.phase is Phase.ENDING:
            return False
        self._move(slot, Phase.ENDING, sandbox_id=slot.sandbox_id)
        return True

    def was_reset(self, instance_id: InstanceId, generation: int) -> None:
        """This generation's end is over, and the next one begins: UNHEARD, if its word was not faster."""
        slot = self._slots.get(instance_id)
        if slot is not None and slot.phase is Phase.ENDING and slot.generation == generation:
            self._move(slot, Phase.UNHEARD, generation=generation + 1)

    def gone(self, instance_id: InstanceId) -> None:
        """Its end is over, and it is gone; or another's by now, whose word is to come."""
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
