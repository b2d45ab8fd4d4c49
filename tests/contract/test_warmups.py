"""The estimate of a warm-up's time left: unknown at first, from the measured rate afterwards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot_contract.warmups import Pace


def test_it_is_unknown_until_three_are_done() -> None:
    pace = Pace(100.0)
    for second in (110.0, 120.0):
        pace.ready(second)
        assert pace.seconds_left(10, now=second) is None
    pace.ready(130.0)
    assert pace.seconds_left(10, now=130.0) == 100.0
    assert pace.seconds_left(0, now=130.0) == 0.0


def test_only_the_last_twenty_count() -> None:
    pace = Pace(0.0)
    for _ in range(500):
        pace.ready(0.0)  # images that were there already
    for second in range(1, 41):
        pace.ready(2.0 * second)
    assert pace.seconds_left(3, now=80.0) == 6.0


def test_it_grows_while_nothing_becomes_ready() -> None:
    pace = Pace(0.0)
    for second in (1.0, 2.0, 3.0):
        pace.ready(second)
    assert pace.seconds_left(3, now=3.0) == 3.0
    assert pace.seconds_left(3, now=30.0) == 30.0


@given(seconds=st.floats(0.1, 1000), count=st.integers(3, 60), left=st.integers(1, 5000))
def test_a_steady_rate_is_foretold(seconds: float, count: int, left: int) -> None:
    pace = Pace(0.0)
    for number in range(1, count + 1):
        pace.ready(seconds * number)
    assert pace.seconds_left(left, now=seconds * count) == pytest.approx(left * seconds)
