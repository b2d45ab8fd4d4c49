"""What becomes of a create's hold on a slot, and of the slot, see sandlot_gateway/core/holds.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sandlot_gateway.core.holds import Holds
from sandlot_gateway.core.slot import Hold, Loss, Phase
from sandlot_gateway.core.slots import Slots

from tests.gateway.test_slots import INSTANCE, LATE, LOSS, NEWS, claimed, granted, made, phase

# How a slot is taken from a create that claims it, and how its claim has ended then.
TAKE: dict[str, tuple[Callable[[Slots], object], str]] = {
    "lost": (lambda slots: slots.lost("i-1", LOSS), LOSS.verdict),
    "reset": (lambda slots: slots.report_warm(INSTANCE, 3), "deleted"),
    "reset and lost": (lambda slots: (TAKE["reset"][0](slots), slots.lost("i-1", LOSS)), "deleted"),
    "reset for another": (lambda slots: slots.report_owned(INSTANCE, 3, "sb-another"), "deleted"),
    "reset, as its end says": (lambda slots: (slots.overtaken("i-1", 3), slots.lost("i-1", LOSS)), "deleted"),
    "another's": (lambda slots: slots.report_owned(INSTANCE, 2, "sb-another"), "given_back"),
    "discarded": (lambda slots: slots.discard("i-1"), "given_back"),
    "lost and discarded": (lambda slots: (slots.lost("i-1", LOSS), slots.discard("i-1")), LOSS.verdict),
}
MOVE: dict[str, Callable[[Holds, Hold], object]] = {
    "claim": lambda holds, hold: holds.claim(hold, "sb-mine", tenant="t"),
    "outdone": lambda holds, hold: holds.outdone(hold),
    "failed": lambda holds, hold: holds.failed(hold),
    "put_back": lambda holds, hold: holds.put_back(hold),
}


def claiming() -> tuple[Slots, Hold]:
    slots = made("absent")
    return slots, claimed(slots)


def test_a_claim_is_begun_once() -> None:
    slots = made("absent")
    hold = granted(slots)
    claim = slots.holds.claim(hold, "sb-mine", tenant="t")
    assert claim is not None
    assert (claim.generation, claim.sandbox_id) == (2, "sb-mine")
    assert slots.holds.claim(hold, "sb-other", tenant="t") is None
    assert hold.claim is claim


def test_a_claim_that_is_accepted() -> None:
    slots, hold = claiming()
    assert slots.holds.accepted(hold) is None
    assert slots.owner("i-1") == "sb-mine"


@pytest.mark.parametrize("how", TAKE)
def test_one_that_was_taken_before_its_answer_tells_how_it_has_ended(how: str) -> None:
    """It was taken for running, or for lost: its gateway did not know which."""
    slots, hold = claiming()
    take, verdict = TAKE[how]
    take(slots)
    loss = slots.holds.accepted(hold)
    assert isinstance(loss, Loss)
    assert loss.verdict == verdict
    assert slots.owner("i-1") in (None, "sb-another")


@pytest.mark.parametrize("how", TAKE)
@pytest.mark.parametrize("move", MOVE)
def test_a_hold_without_a_slot_moves_none(how: str, move: str) -> None:
    for hold_one in (granted, claimed):
        slots = made("absent")
        hold = hold_one(slots)
        TAKE[how][0](slots)
        before = phase(slots)
        assert not MOVE[move](slots.holds, hold)
        assert phase(slots) is (None if how == "lost" and before is Phase.CLAIMING else before)


@pytest.mark.parametrize("move", MOVE)
def test_a_hold_moves_no_slot_of_the_next_create(move: str) -> None:
    """The next one lost its slot to whoever was granted it then, and ended."""
    for hold_one in (granted, claimed):
        slots = made("absent")
        first = hold_one(slots)
        assert slots.report_warm(INSTANCE, 3) is NEWS
        second = slots.grant(INSTANCE)
        assert slots.holds.claim(second, "sb-next", tenant="t") is not None
        assert not MOVE[move](slots.holds, first)
        assert slots.holds.accepted(second) is None
        assert slots.owner("i-1") == "sb-next"


def test_what_becomes_of_one_whose_claim_is_not_accepted() -> None:
    slots, hold = claiming()
    assert slots.holds.outdone(hold)
    assert phase(slots) is Phase.UNREPORTED
    assert slots.report_owned(INSTANCE, 2, "sb-another") is NEWS
    slots, hold = claiming()
    assert slots.holds.failed(hold)
    assert phase(slots) is Phase.ENDING
    assert slots.report_owned(INSTANCE, 2, "sb-mine") is LATE, "it may have been accepted, and is taken away"


def test_one_that_is_put_back() -> None:
    for hold_one in (granted, claimed):
        slots = made("absent")
        hold = hold_one(slots)
        assert slots.holds.put_back(hold) is INSTANCE
        assert phase(slots) is Phase.UNREPORTED
        slots.wait(INSTANCE)
        assert slots.holds.put_back(hold) is None, "once"
        assert phase(slots) is Phase.WARM


def test_only_a_later_generation_takes_a_slot_from_its_create() -> None:
    slots, hold = claiming()
    for generation in (1, 2):
        slots.overtaken("i-1", generation)
    assert slots.holds.accepted(hold) is None
    slots.overtaken("i-1", 3)
    assert slots.owner("i-1") == "sb-mine", "it is no create's any more"


def unanswered() -> tuple[Slots, Hold]:
    slots, hold = claiming()
    assert slots.holds.unanswered(hold)
    assert phase(slots) is Phase.ENDING
    return slots, hold


def test_one_without_an_answer_is_claimed_again() -> None:
    slots, hold = unanswered()
    assert slots.report_owned(INSTANCE, 2, "sb-mine") is LATE, "its sidecar is still asked"
    slots.gone("i-1")  # by whoever has ended an earlier generation
    assert slots.holds.asked_again(hold)
    assert phase(slots) is Phase.CLAIMING
    assert slots.holds.accepted(hold) is None
    assert slots.owner("i-1") == "sb-mine"


def test_one_without_an_answer_is_given_back() -> None:
    slots, hold = unanswered()
    assert slots.holds.failed(hold)
    assert phase(slots) is Phase.ENDING
    slots.gone("i-1")
    assert phase(slots) is None


def test_one_that_is_lost_without_an_answer_is_still_to_be_given_back() -> None:
    """Its gateway took its end, which it had asked for, for a loss, and left its record to nobody."""
    slots, hold = unanswered()
    lost = slots.lost("i-1", LOSS)
    assert lost is not None
    assert lost.phase is Phase.ENDING
    assert slots.phase("i-1") is Phase.GONE, "whoever has the hold"
    assert not slots.holds.asked_again(hold)
    assert slots.holds.failed(hold)
    assert slots.phase("i-1") is Phase.GONE
    assert not slots.holds.failed(hold), "once"


@pytest.mark.parametrize("how", ["reset", "reset and lost", "reset for another", "another's"])
def test_one_without_an_answer_that_is_anothers_is_not_given_back(how: str) -> None:
    slots, hold = unanswered()
    TAKE[how][0](slots)
    before = phase(slots)
    assert not slots.holds.asked_again(hold)
    assert not slots.holds.failed(hold)
    assert phase(slots) is before


def test_one_that_was_taken_before_its_claim_was_given_up_is_not_asked_to_end() -> None:
    for take, _ in TAKE.values():
        slots, hold = claiming()
        take(slots)
        assert not slots.holds.unanswered(hold)
