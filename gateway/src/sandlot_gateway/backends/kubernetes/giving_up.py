"""What becomes of an instance that the gateway has given up: a decision by its sidecar's answer and what is written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from ...core.slots import Phase
from ...sidecars import EndAnswer


class Outcome(Enum):
    KEEP = auto()  # a create here has it, or may have been offered it
    ASK = auto()  # somebody has it, or may: learn who from its sidecar
    LEAVE = auto()  # no sandbox here has it any more, and others write what is to be written
    DROP = auto()  # as LEAVE, and the Sandbox that only its start was for is deleted
    GIVE_BACK = (
        auto()
    )  # as DROP, but the Sandbox stays, with an end: deleted, it would be the end of a claim's sandbox
    WRITE_END = auto()  # as LEAVE, and it gets a Sandbox with an end, by which the controller takes its pod


@dataclass(frozen=True, slots=True)
class Written:
    """What of it is written, or will be, after the answer."""

    cold: bool | None  # it has a Sandbox of its own; None: not known yet
    claimed: bool = False  # a Sandbox has it with an owner, or an end
    blind: bool = False  # Sandboxes cannot be seen at this time
    given_back: bool = False  # a claim of it has failed here, of which other gateways may have heard


def decide(answer: EndAnswer, phase: Phase | None, written: Written) -> Outcome:
    """`answer`: of a sidecar that was asked to end unless it has an owner. `phase`: the ledger's, after it.

    Only the sidecar tells a claim and such an end apart. What it has not answered may have been claimed while it was
    asked, here or by another gateway, and an end on suspicion would be its new owner's.
    """
    if phase is Phase.OWNED:
        return Outcome.KEEP
    if answer == EndAnswer.OWNED:
        return Outcome.ASK
    if answer == EndAnswer.UNKNOWN and phase not in (None, Phase.ENDING, Phase.GONE):
        return Outcome.KEEP  # it came up meanwhile; whoever was offered it may be about to claim it
    if answer == EndAnswer.UNKNOWN and phase is Phase.ENDING and written.blind:
        return Outcome.ASK
    if written.claimed:
        return Outcome.LEAVE
    if written.cold:
        return Outcome.GIVE_BACK if written.given_back else Outcome.DROP
    # A pool's pod whose sidecar has ended is seen and taken away by the controller.
    return Outcome.LEAVE if answer == EndAnswer.ENDED else Outcome.WRITE_END
