"""Turns by weight: of tenants, of the runs of each, and while weights change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandlot_gateway.core.fair_queue import Scheduling
from sandlot_gateway.core.group_turns import Collect, GroupId, GroupTurns
from sandlot_gateway.core.template_line import Waiter
from sandlot_gateway.core.waiting import WaitList

from tests.gateway.test_wait_list import KEY, served, waiter

Weights = dict[tuple[str, ...], int]


def line_with(weights: Weights) -> WaitList[int]:
    return WaitList(lambda path: Scheduling(weights.get(tuple(path), 1)))


def filled(weights: Weights, paths: Sequence[tuple[str, str]], *, each: int) -> WaitList[int]:
    """Return a line in which each of these runs has as many waiters."""
    line = line_with(weights)
    for tenant, run in paths:
        for number in range(each):
            line.add(waiter(tenant, number, run=run))
    return line


def test_a_run_of_weight_three_has_three_turns_for_each_of_another() -> None:
    line = filled({("a", "r"): 3}, [("a", "s"), ("a", "r")], each=60)
    assert Counter(one.run for one in served(line, 80)) == {"r": 60, "s": 20}
    assert {one.run for one in served(line, 40)} == {"s"}, "alone it has all turns"


def test_turns_of_weights_are_spread_and_not_in_blocks() -> None:
    line = filled({("a", "r"): 3}, [("a", "s"), ("a", "r")], each=20)
    assert [one.run for one in served(line, 8)] == ["r", "r", "s", "r", "r", "r", "s", "r"]


def test_weights_of_runs_divide_their_tenant_s_share_only() -> None:
    weights = {("a", "r"): 1000, ("b",): 3, ("b", "t"): 7}
    line = filled(weights, [("a", "r"), ("a", "s"), ("b", "t")], each=90)
    assert Counter(one.tenant for one in served(line, 80)) == {"a": 20, "b": 60}


def test_weights_without_a_common_multiple_keep_their_ratio() -> None:
    """A third, a seventh and an eleventh have no exact sum in floats."""
    weights = {("a",): 3, ("b",): 7, ("c",): 11}
    line = filled(weights, [("a", ""), ("b", ""), ("c", "")], each=2310)
    turns = Counter(one.tenant for one in served(line, 2100))
    assert all(abs(turns[name] - 100 * weights[name,]) <= 1 for name in "abc")


def test_a_changed_weight_holds_for_those_that_wait() -> None:
    weights: Weights = {}
    line = filled(weights, [("a", "r"), ("a", "s")], each=400)
    last = waiter("a", 1000, run="r")
    line.add(last)
    assert Counter(one.run for one in served(line, 100)) == {"r": 50, "s": 50}
    weights["a", "r"] = 4
    line.reschedule()
    assert line.position(last) == 351 + 87
    assert Counter(one.run for one in served(line, 100)) == {"r": 80, "s": 20}
    weights["a", "r"], weights["a", "s"] = 1, 4
    line.reschedule()
    assert Counter(one.run for one in served(line, 100)) == {"r": 20, "s": 80}


def test_the_least_weight_is_served_beside_the_greatest() -> None:
    line = filled({("a", "big"): 1000}, [("a", "big")], each=50)
    line.add(small := waiter("a", 0, run="small"))
    for number in range(1001):
        if not small.waiting:
            break
        served(line, 1)
        line.add(waiter("a", 50 + number, run="big"))
    assert not small.waiting


@pytest.mark.parametrize(("weight", "other", "turns"), [(0, 1, 5), (-3, 1, 5), (10**9, 250, 8)])
def test_a_weight_out_of_range_counts_as_the_nearest(weight: int, other: int, turns: int) -> None:
    line = filled({("a", "r"): weight, ("a", "s"): other}, [("a", "r"), ("a", "s")], each=20)
    assert Counter(one.run for one in served(line, 10))["r"] == turns


def test_groups_collect_by_weight() -> None:
    turns = GroupTurns(
        alone=True,
        chance=lambda: 0.5,
        schedule=lambda path: Scheduling(3 if tuple(path) == ("t", "r") else 1),
    )
    now, order = 0.0, ""
    for number in range(20):
        for run in "sr":
            turns.join(GroupId(f"{run}{number}"), tenant="t", run=run, now=now)
    while len(order) < 17:
        assert turns.collecting is not None
        order += turns.collecting[0]
        [collect] = turns.leave(turns.collecting, now=now)
        assert isinstance(collect, Collect)
    # The first one began before any other was there.
    assert Counter(order[1:]) == {"r": 12, "s": 4}


RUNS = [("a", "r"), ("a", "s"), ("b", "r")]
NAMED = st.sampled_from([*RUNS, ("a",), ("b",)])
Step = tuple[str, tuple[str, ...], int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["join", "join", "join", "serve", "serve", "leave", "out of turn", "front", "weight"]
        ),
        NAMED,
        st.integers(1, 1000),
    ),
    max_size=60,
)


@given(STEPS)
@settings(deadline=None)
def test_whatever_happens_to_weights_each_waits_in_its_run_s_order(steps: list[Step]) -> None:
    weights: Weights = {}
    line = line_with(weights)
    waiting: list[Waiter[int]] = []
    for number, (what, path, weight) in enumerate(steps):
        if what == "weight":
            weights[path] = weight
            line.reschedule()
        elif what in ("join", "front"):
            tenant, run = path if len(path) == 2 else (path[0], "")
            waiting.append(one := waiter(tenant, number, run=run))
            line.add(one, front=what == "front")
        elif what == "serve" and waiting:
            [one] = served(line, 1)
            assert all(one.place <= other.place for other in waiting if other.path == one.path)
            waiting.remove(one)
        elif waiting:
            one = waiting.pop(number % len(waiting))
            if what == "leave":
                assert line.remove(one)
            else:
                line.serve(one)
        assert sorted(map(line.position, waiting)) == list(range(1, len(waiting) + 1))
        in_line = line.in_line(KEY)
        assert in_line == sorted(waiting, key=line.position)
        for run in {one.path for one in waiting}:
            places = [one.place for one in in_line if one.path == run]
            assert places == sorted(places)
    assert len(served(line, len(waiting))) == len(waiting)
    assert not len(line)


@given(
    st.dictionaries(NAMED, st.integers(1, 1000)),
    st.lists(st.tuples(st.sampled_from(RUNS), st.integers(0, 6)), max_size=60),
)
@settings(deadline=None)
def test_of_two_groups_that_wait_neither_is_more_than_a_turn_of_each_ahead(
    weights: Weights, asks: list[tuple[tuple[str, str], int]]
) -> None:
    line = line_with(weights)
    waiting: Counter[tuple[str, ...]] = Counter()
    # two groups of one parent that both wait -> turns of the first times the second's weight, less the reverse
    ahead: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}

    def weight(group: tuple[str, ...]) -> int:
        return weights.get(group, 1)

    def serve() -> None:
        [one] = served(line, 1)
        for group in ((one.tenant,), one.path):
            waiting[group] -= 1
            for pair in list(ahead):
                if group in pair:
                    first, second = pair
                    ahead[pair] += weight(second) if group == first else -weight(first)
                    assert abs(ahead[pair]) <= weight(first) + weight(second)
                    if not waiting[group]:
                        del ahead[pair]

    for number, ((tenant, run), turns) in enumerate(asks):
        if turns < 2 and len(line):
            serve()
        for more in range(turns):
            line.add(waiter(tenant, number * 10 + more, run=run))
            waiting.update([(tenant,), (tenant, run)])
        for pair in combinations([group for group in waiting if waiting[group]], 2):
            if len(pair[0]) == len(pair[1]) and pair[0][:-1] == pair[1][:-1] and pair[::-1] not in ahead:
                ahead.setdefault(pair, 0)
    while len(line):
        serve()
