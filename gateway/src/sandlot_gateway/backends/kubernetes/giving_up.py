"""What becomes of an instance that this gateway wants to be rid of: a decision by what was known and what was answered."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from ...sidecars import Ending


class Outcome(Enum):
    KEEP = auto()  # a create here has it, or may have been offered it
    ASK = auto()  # somebody has it, or may: learn who from its sidecar
    LEAVE = auto()  # no sandbox here has it any more, and others write what is to be written
    DROP = auto()  # as LEAVE, and the Sandbox that only this start was for is deleted
    WRITE_END = auto()  # as LEAVE, and its Sandbox gets an end


@dataclass(frozen=True, slots=True)
class Standing:
    """What this gateway knows of an instance at one moment."""

    claimed: bool  # by a sandbox that it knows
    heard: bool  # its sidecar has said what it is: creates are offered it


@dataclass(frozen=True, slots=True)
class Written:
    """What of it is written, or will be, after the answer."""

    cold: bool | None  # it has a Sandbox of its own; None: not known yet
    end_coming: bool = False  # another gateway seems to write its end
    claimed_elsewhere: bool = False  # the Sandbox has an owner that this gateway has not heard of
    blind: bool = False  # Sandboxes cannot be seen at this time


def decide(before: Standing, answer: Ending, now: Standing, written: Written) -> Outcome:
    """`answer`: of a sidecar that was asked to end unless it has an owner, "unknown" where none was asked.

    Only the sidecar tells a claim and such an end apart. What it has not answered may have been claimed while it was
    asked, here or by another gateway, and an end on suspicion would be its new owner's.
    """
    if now.claimed and not before.claimed:
        return Outcome.KEEP
    if answer == "unknown" and now.heard and not before.heard:
        return Outcome.KEEP  # it came up meanwhile; whoever was offered it may be about to claim it
    if answer == "owned":
        return Outcome.ASK
    if answer == "unknown" and not now.claimed and now.heard and written.blind:
        return Outcome.ASK
    if written.end_coming or (written.claimed_elsewhere and not now.claimed):
        return Outcome.LEAVE
    if written.cold and not now.claimed:
        return Outcome.DROP
    # A pool's pod whose sidecar has ended is seen and taken away by the controller.
    return Outcome.LEAVE if answer == "ended" else Outcome.WRITE_END
