"""What the load test `fair-share` counts: turns while both runs wait, what is due, and estimates."""

from __future__ import annotations

from itertools import cycle, islice

import pytest

from loadtests.load.shares import HEAVY, LIGHT, Told, Turn, figures

WAITED = 10.0


def turns(order: str, *, count: int) -> list[Turn]:
    """One turn a second in this order, repeated, each asked for some seconds before."""
    names = {"h": HEAVY, "l": LIGHT}
    return [
        Turn(names[letter], at - WAITED, float(at), at + 0.5, f"sb-{at}")
        for at, letter in enumerate(islice(cycle(order), count))
    ]


def test_turns_by_weight_are_fair_and_others_are_not() -> None:
    fair = figures(turns("hhlh", count=400), {}, weight=3)
    assert fair["unfair"] <= 0
    assert fair["share_light"] == pytest.approx(1.0, abs=0.02)
    assert figures(turns("hl", count=40), {}, weight=3)["unfair"] > 0
    assert figures(turns("hhhhhhhl", count=400), {}, weight=3)["unfair"] > 0


def test_a_turn_while_the_other_run_waits_for_nothing_does_not_count() -> None:
    alone = [Turn(HEAVY, at - 1.0, float(at), at + 0.5) for at in range(1000, 1100)]
    found = figures([*turns("hhlh", count=40), *alone], {}, weight=3)
    assert found["turns"] == 140
    assert found["turns_heavy"] + found["turns_light"] <= 40
    assert found["unfair"] <= 0


def test_a_create_that_was_given_up_waited_and_had_no_turn() -> None:
    served = [Turn(HEAVY, at - 1.0, float(at), at + 0.5) for at in range(10)]
    given_up = Turn(LIGHT, -5.0, 50.0, None)
    found = figures([*served, given_up], {}, weight=3)
    assert (found["turns"], found["turns_heavy"], found["turns_light"]) == (10, 10, 0)


def test_estimates_are_compared_with_the_wait_that_followed() -> None:
    one, other, third = turns("lll", count=3)
    told = {
        one.sandbox: Told(one.asked, 3, 11.0),
        other.sandbox: Told(other.asked, 4, 4.0),
        third.sandbox: Told(third.asked, 4, None),
    }
    found = figures([one, other, third], told, weight=3)
    assert (found["placed_light"], found["estimated_light"], found["within_light"]) == (3, 2, 0.5)
    assert found["placed_heavy"] == 0
