"""Giving an instance up, without I/O: every answer in every phase."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from sandlot_gateway.backends.kubernetes.giving_up import Outcome, Written, decide
from sandlot_gateway.core.slot import Phase
from sandlot_gateway.sidecars import EndAnswer

KEEP, ASK, LEAVE, DROP, GIVE_BACK, WRITE_END = Outcome
BOTH = (False, True)
ON_OFFER = (Phase.UNREPORTED, Phase.WARM, Phase.CLAIMING)
GIVEN_UP = (None, Phase.ENDING, Phase.GONE)


def every() -> Iterator[tuple[EndAnswer, Phase | None, Written]]:
    all_written = [Written(*each) for each in product((None, *BOTH), BOTH, BOTH, BOTH)]
    yield from product(EndAnswer, (None, *Phase), all_written)


def test_an_owner_who_came_while_it_was_asked_keeps_it() -> None:
    for answer, phase, written in every():
        if phase is Phase.OWNED:
            assert decide(answer, phase, written) is KEEP


def test_nothing_is_ended_that_somebody_may_have() -> None:
    """By its sidecar's word, or since it was offered here while nobody answered."""
    for answer, phase, written in every():
        offered = answer.unheard and phase in ON_OFFER
        hidden = answer.unheard and phase is Phase.ENDING and written.blind
        if answer.kept or offered or hidden:
            assert decide(answer, phase, written) in (KEEP, ASK)


def test_what_has_ended_is_not_offered_again() -> None:
    for answer, phase, written in every():
        if answer is EndAnswer.ENDED and phase is not Phase.OWNED:
            assert decide(answer, phase, written) in (LEAVE, DROP, GIVE_BACK)


def test_what_was_given_up_and_does_not_answer_goes() -> None:
    for answer, phase, written in every():
        if answer is EndAnswer.UNKNOWN and phase in GIVEN_UP and not written.blind:
            assert decide(answer, phase, written) in (LEAVE, DROP, GIVE_BACK, WRITE_END)


def test_a_pool_s_pod_is_not_deleted_because_of_this_gateway_s_certificate() -> None:
    for answer, phase, written in every():
        if answer is EndAnswer.UNTRUSTED and not written.cold:
            assert decide(answer, phase, written) in (KEEP, ASK, LEAVE)


def test_only_a_start_without_an_owner_is_deleted_and_nothing_is_written_over_an_owners_record() -> None:
    for answer, phase, written in every():
        outcome = decide(answer, phase, written)
        if outcome in (DROP, GIVE_BACK):
            assert written.cold
            assert (outcome is GIVE_BACK) == written.given_back
        if outcome in (DROP, GIVE_BACK, WRITE_END):
            assert not written.claimed


@pytest.mark.parametrize(
    ("answer", "phase", "written", "outcome"),
    [
        (EndAnswer.UNKNOWN, None, Written(cold=True), DROP),  # a start that never came up
        (EndAnswer.UNKNOWN, Phase.WARM, Written(cold=True), KEEP),
        (EndAnswer.ENDED, Phase.WARM, Written(cold=True), DROP),
        (EndAnswer.ENDED, Phase.ENDING, Written(cold=True), DROP),  # a spare that nobody wanted
        (EndAnswer.ENDED, Phase.ENDING, Written(cold=False), LEAVE),  # a pool's: the controller takes it
        (EndAnswer.UNKNOWN, Phase.ENDING, Written(cold=False), WRITE_END),
        (EndAnswer.UNTRUSTED, Phase.ENDING, Written(cold=False), ASK),
        (EndAnswer.UNTRUSTED, None, Written(cold=True), DROP),  # nobody else is to have it
        (EndAnswer.UNKNOWN, Phase.ENDING, Written(cold=None, blind=True), ASK),
        (EndAnswer.UNKNOWN, Phase.GONE, Written(cold=None, blind=True), WRITE_END),
        (EndAnswer.OWNED, Phase.ENDING, Written(cold=False), ASK),
        (EndAnswer.UNKNOWN, Phase.ENDING, Written(cold=False, claimed=True), LEAVE),
    ],
)
def test_what_becomes_of(answer: EndAnswer, phase: Phase | None, written: Written, outcome: Outcome) -> None:
    assert decide(answer, phase, written) is outcome
