"""Giving an instance up, without I/O: every state before and after every answer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from sandlot_gateway.backends.kubernetes.giving_up import Outcome, Standing, Written, decide
from sandlot_gateway.sidecars import Ending

KEEP, ASK, LEAVE, DROP, WRITE_END = Outcome
BOTH = (False, True)
WARM, OWNED, UNHEARD = Standing(False, True), Standing(True, True), Standing(False, False)


def every() -> Iterator[tuple[Standing, Ending, Standing, Written]]:
    """All that can be; one that has an owner is not asked whether it has one, and has it after that."""
    standings = [Standing(*each) for each in product(BOTH, BOTH)]
    all_written = [Written(*each) for each in product((None, *BOTH), BOTH, BOTH, BOTH)]
    answers: tuple[Ending, ...] = ("ended", "owned", "unknown")
    for before, answer, now, written in product(standings, answers, standings, all_written):
        if not before.claimed or (answer == "unknown" and now == before):
            yield before, answer, now, written


def test_an_owner_who_came_while_it_was_asked_keeps_it() -> None:
    for before, answer, now, written in every():
        if now.claimed and not before.claimed:
            assert decide(before, answer, now, written) is KEEP


def test_nothing_is_ended_that_somebody_may_have() -> None:
    """By its sidecar's word, or since it was offered here while nobody answered."""
    for before, answer, now, written in every():
        offered = answer == "unknown" and now.heard and not before.heard
        hidden = answer == "unknown" and now.heard and not now.claimed and written.blind
        if answer == "owned" or offered or hidden:
            assert decide(before, answer, now, written) in (KEEP, ASK)


def test_what_was_owned_before_and_is_to_go_goes() -> None:
    for before, answer, now, written in every():
        if before.claimed:
            assert decide(before, answer, now, written) is (LEAVE if written.end_coming else WRITE_END)


def test_what_has_ended_is_not_offered_again() -> None:
    for before, answer, now, written in every():
        if answer == "ended" and not now.claimed:
            assert decide(before, answer, now, written) in (LEAVE, DROP)


def test_only_a_start_without_an_owner_is_deleted_and_never_one_that_another_gateway_tells_of() -> None:
    for before, answer, now, written in every():
        outcome = decide(before, answer, now, written)
        if outcome is DROP:
            assert written.cold
            assert not now.claimed
        if outcome in (DROP, WRITE_END) and not now.claimed:
            assert not written.claimed_elsewhere
        if outcome in (DROP, WRITE_END):
            assert not written.end_coming


@pytest.mark.parametrize(
    ("before", "answer", "now", "written", "outcome"),
    [
        (UNHEARD, "unknown", UNHEARD, Written(cold=True), DROP),  # a start that never came up
        (UNHEARD, "unknown", WARM, Written(cold=True), KEEP),
        (UNHEARD, "ended", WARM, Written(cold=True), DROP),
        (WARM, "ended", WARM, Written(cold=True), DROP),  # a spare that nobody wanted
        (WARM, "ended", WARM, Written(cold=False), LEAVE),  # a pool's: the controller takes it
        (WARM, "unknown", WARM, Written(cold=False), WRITE_END),
        (WARM, "unknown", WARM, Written(cold=None, blind=True), ASK),
        (WARM, "owned", WARM, Written(cold=False), ASK),
        (WARM, "unknown", WARM, Written(cold=False, claimed_elsewhere=True), LEAVE),
        (OWNED, "unknown", OWNED, Written(cold=True), WRITE_END),
        (OWNED, "unknown", OWNED, Written(cold=False, end_coming=True), LEAVE),
    ],
)
def test_what_becomes_of(
    before: Standing, answer: Ending, now: Standing, written: Written, outcome: Outcome
) -> None:
    assert decide(before, answer, now, written) is outcome
