"""How long a sandbox may exist that not all gateways have denied."""

from __future__ import annotations

import pytest
from sandlot_contract.ids import SandboxId
from sandlot_gateway.backends.kubernetes.doubts import Doubts

SANDBOX = SandboxId("sb-0")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def doubts(clock: Clock) -> Doubts:
    return Doubts(clock=clock, limit=3)


def test_a_question_counts_for_a_moment(doubts: Doubts, clock: Clock) -> None:
    assert not doubts.may_exist(SANDBOX)
    assert doubts.asked(SANDBOX)
    assert doubts.may_exist(SANDBOX)
    clock.now += 5.0
    assert not doubts.may_exist(SANDBOX)


def test_denied_it_does_not_exist_and_may_be_asked_for_again(doubts: Doubts) -> None:
    doubts.asked(SANDBOX)
    doubts.denied(SANDBOX)
    assert not doubts.may_exist(SANDBOX)
    assert doubts.asked(SANDBOX)


def test_questions_without_an_answer_count_for_a_minute_however_often_they_come(
    doubts: Doubts, clock: Clock
) -> None:
    for _ in range(30):
        assert doubts.asked(SANDBOX)
        clock.now += 2.0
    for _ in range(300):
        assert not doubts.asked(SANDBOX)
        clock.now += 2.0
        assert not doubts.may_exist(SANDBOX) or clock.now < 1065.0


def test_an_answer_that_it_exists_begins_the_minute_anew(doubts: Doubts, clock: Clock) -> None:
    doubts.asked(SANDBOX)
    doubts.settle(SANDBOX)
    assert not doubts.may_exist(SANDBOX)
    assert not doubts.asked(SANDBOX)
    doubts.exists(SANDBOX)
    assert doubts.may_exist(SANDBOX)
    clock.now += 59.0
    assert doubts.asked(SANDBOX)


def test_no_more_are_kept_than_may_exist_now(doubts: Doubts, clock: Clock) -> None:
    for number in range(10):
        assert doubts.asked(SandboxId(f"sb-{number}"))
    assert all(doubts.may_exist(SandboxId(f"sb-{number}")) for number in range(10))
    clock.now += 6.0
    doubts.asked(SANDBOX)
    assert len(doubts) <= 3
    clock.now += 1000.0
    doubts.asked(SandboxId("sb-x"))
    assert len(doubts) == 1
