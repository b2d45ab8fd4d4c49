"""What an answer with a date in whole seconds tells of a clock: no more than it can, however long it took."""

from __future__ import annotations

import pytest
from sandlot.cli.cluster.skew import Skew


@pytest.mark.parametrize(
    ("date", "sent", "got", "wrong", "within"),
    [
        (100, 100.9, 100.95, False, 1),  # the date is rounded down: both clocks agree
        (100, 100.2, 111.4, False, 12),  # written at once, and on its way for 11 s
        (111, 100.2, 111.4, False, 12),  # written after 11 s
        (100, 111.5, 111.6, True, 12),
        (100, 110.9, 110.95, False, 11),
        (112, 100.2, 100.4, True, 13),
        (110, 100.2, 100.4, False, 11),
    ],
    ids=["agrees", "slow way", "slow answer", "behind", "perhaps 10 s behind", "ahead", "perhaps 10 s ahead"],
)
def test_only_what_is_certain_is_wrong(
    date: float, sent: float, got: float, wrong: bool, within: int
) -> None:
    skew = Skew.told(date, sent=sent, got=got)
    assert skew.exceeds(10) is wrong
    assert skew.within == within
    assert (-skew).exceeds(10) is wrong


def test_of_two_differences_the_sum_is_as_wide_as_both() -> None:
    assert Skew(-1, 2) + -Skew(-300, -299) == Skew(298, 302)
    assert (Skew(298, 302).middle, Skew(298, 302).exceeds(10)) == (300, True)
