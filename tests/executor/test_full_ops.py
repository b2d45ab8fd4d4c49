"""How many checks at its process limit make a command a fork bomb, under gVisor where a bomb delays the checks."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from sandlot_sidecar.executor.counters import Counters
from sandlot_sidecar.executor.op import FULL_CHECKS, FULL_INTERVAL, Op


@pytest.fixture
def op() -> Iterator[Op]:
    made = Op(pid=os.getpid(), inner_pid=1, mark="", before=Counters(None, []))
    yield made
    os.close(made.pidfd)


def test_a_bomb_is_full_at_each_check(op: Op) -> None:
    for number in range(FULL_CHECKS):
        assert not op.over_limit
        op.check_full(True, now=number * FULL_INTERVAL)
    assert op.over_limit


def test_a_late_check_stands_for_those_before_it(op: Op) -> None:
    late = FULL_CHECKS * FULL_INTERVAL
    for number in range(3):
        assert not op.over_limit
        op.check_full(True, now=number * late)
    assert op.over_limit


def test_a_pause_of_the_pod_makes_no_bomb(op: Op) -> None:
    """An op that touches its limit before and after it, as a parallel build may, has not been there all the time."""
    op.check_full(True, now=1.0)
    op.check_full(True, now=60.0)
    assert not op.over_limit


def test_a_late_check_stands_for_none_after_one_below_the_limit(op: Op) -> None:
    op.check_full(True, now=1.0)
    op.check_full(False, now=1.0 + FULL_INTERVAL)
    op.check_full(True, now=9.0)
    assert not op.over_limit
