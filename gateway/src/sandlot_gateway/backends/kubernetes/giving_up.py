"""Decides what to do with an instance that the gateway gave up, from its sidecar's answer and its record."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from ...core.slot import Phase
from ...sidecars import EndAnswer


class Outcome(Enum):
    KEEP = auto()  # a create here owns it or may be claiming it
    ASK = auto()  # it has an owner, or may have: poll its sidecar
    LEAVE = auto()  # forget it; another gateway or the controller records the end
    DROP = auto()  # forget it and delete the Sandbox that was made for its start
    # as DROP, but end the Sandbox: other gateways would take its deletion for the end of a claim's sandbox
    GIVE_BACK = auto()
    WRITE_END = auto()  # forget it and write a Sandbox with an end, so that the controller deletes the pod


@dataclass(frozen=True, slots=True)
class Written:
    """The state of its record after the sidecar's answer."""

    cold: bool | None  # it has a Sandbox of its own; None: unknown yet
    claimed: bool = False  # its record has an owner or an end
    blind: bool = False  # the watch of Sandboxes is broken
    given_back: bool = False  # a claim failed here that other gateways may know
    reused: bool = False  # its pod runs one sandbox after the other, so that no record ends it


def decide(answer: EndAnswer, phase: Phase | None, written: Written) -> Outcome:
    """Return what to do. `answer`: of the sidecar, asked to end unless it is owned. `phase`: the ledger's, after that.

    Only the sidecar orders a claim and such an end. Without its answer the instance may have been claimed meanwhile,
    here or by another gateway, and ending it would end its new owner.
    """
    if phase is Phase.OWNED:
        return Outcome.KEEP
    if answer.kept:
        return Outcome.ASK
    if answer.unheard and phase not in (None, Phase.ENDING, Phase.GONE):
        return Outcome.KEEP  # it reported meanwhile, and a create may be about to claim it
    if written.reused:
        return Outcome.LEAVE if answer == EndAnswer.ENDED else Outcome.ASK
    if answer.unheard and phase is Phase.ENDING and written.blind:
        return Outcome.ASK
    if written.claimed:
        return Outcome.LEAVE
    if written.cold:
        return Outcome.GIVE_BACK if written.given_back else Outcome.DROP
    if answer == EndAnswer.UNTRUSTED:
        # The fault may be this gateway's own, which must not cost a healthy pod that others can use.
        return Outcome.ASK
    # The controller sees and deletes a pool's pod whose sidecar has ended.
    return Outcome.LEAVE if answer == EndAnswer.ENDED else Outcome.WRITE_END
