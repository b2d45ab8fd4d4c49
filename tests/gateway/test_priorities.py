"""Priorities of runs in the queue of creates: a strict order within a tenant, and nothing taken from others."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandlot_gateway.core.fair_queue import Scheduling
from sandlot_gateway.core.template_line import Waiter

from tests.gateway.priority_line import HIGH, LOW, Runs, filled, line_with
from tests.gateway.test_wait_list import KEY, TEMPLATES, served, waiter
from tests.gateway.trainers import LONGEST, SLOTS, Trainers, close


def test_all_creates_of_a_higher_priority_come_before_those_of_a_lower_one() -> None:
    runs = {("a", "high"): HIGH, ("a", "low"): LOW}
    line = filled(runs, [("a", "low"), ("a", ""), ("a", "high")], each=20)
    assert [run for run, _ in groupby(served(line, 60), key=lambda one: one.run)] == ["high", "", "low"]


def test_one_that_joins_late_is_next_and_positions_say_so() -> None:
    line = filled({("a", "eval"): HIGH}, [("a", "train")], each=20)
    served(line, 5)
    line.add(late := waiter("a", 100, run="eval"))
    [first, *_] = line.in_line(KEY)
    assert first is late
    assert line.position(late) == 1
    assert [line.position(one) for one in line.in_line(KEY)] == list(range(1, 17))


def test_runs_of_one_priority_share_by_weight() -> None:
    runs = {("a", "r"): Scheduling(3, 7), ("a", "s"): Scheduling(1, 7), ("a", "t"): Scheduling(1000, 6)}
    line = filled(runs, [("a", "t"), ("a", "s"), ("a", "r")], each=60)
    assert Counter(one.run for one in served(line, 80)) == {"r": 60, "s": 20}
    assert {one.run for one in served(line, 40)} == {"s"}
    assert {one.run for one in served(line, 60)} == {"t"}


def test_a_priority_takes_no_turn_from_another_tenant() -> None:
    runs = {
        ("a", "r"): Scheduling(priority=100),
        ("b",): Scheduling(3),
        ("b", "t"): Scheduling(priority=-100),
    }
    line = filled(runs, [("a", "s"), ("a", "r"), ("b", "t")], each=90)
    turns = served(line, 80)
    assert Counter(one.tenant for one in turns) == {"a": 20, "b": 60}
    assert {one.run for one in turns} == {"r", "t"}


def test_what_the_higher_one_cannot_use_goes_to_the_lower_one() -> None:
    line = line_with({("a", "high"): HIGH})
    line.add(waiter("a", 0, TEMPLATES[2], run="high"))
    line.add(waiter("a", 1, run="low"))
    assert [one.value for one in served(line, 2)] == [1]
    assert [one.value for one in served(line, 2, TEMPLATES[2].key)] == [0]


def test_a_changed_priority_holds_for_those_that_wait_and_keeps_their_order() -> None:
    runs: Runs = {}
    line = filled(runs, [("a", "r"), ("a", "s")], each=10)
    served(line, 4)
    runs["a", "s"] = HIGH
    assert line.reschedule()
    assert not line.reschedule(), "nothing has changed since"
    turns = served(line, 16)
    assert [(one.run, one.value) for one in turns] == [
        *(("s", value) for value in range(2, 10)),
        *(("r", value) for value in range(2, 10)),
    ]


def test_a_full_queue_has_the_same_places_whatever_the_priorities() -> None:
    plain = filled({}, [("a", "r"), ("a", "s"), ("b", "")], each=10)
    ranked = filled({("a", "r"): HIGH, ("a", "s"): LOW}, [("a", "r"), ("a", "s"), ("b", "")], each=10)
    for tenant, run in [("a", "r"), ("a", "s"), ("a", "new"), ("b", ""), ("c", "")]:
        for limit in (10, 30, 300):
            assert ranked.full(tenant, run, limit=limit) == plain.full(tenant, run, limit=limit)


RUNS = [("a", "r"), ("a", "s"), ("a", "t"), ("b", "r"), ("b", "s")]
Step = tuple[str, tuple[str, str], int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["join", "join", "join", "join", "serve", "serve", "leave", "out of turn", "front", "change"]
        ),
        st.sampled_from(RUNS),
        st.integers(1, 4),
        st.integers(-2, 2),
    ),
    max_size=80,
)


@given(STEPS)
@settings(deadline=None)
def test_whatever_happens_none_is_served_before_a_higher_one_and_none_is_lost(steps: list[Step]) -> None:
    runs: Runs = {}
    line = line_with(runs)
    waiting: list[Waiter[int]] = []

    def priority(one: Waiter[int]) -> int:
        return runs.get(one.path, Scheduling()).priority

    for number, (what, (tenant, run), weight, changed) in enumerate(steps):
        if what == "change":
            runs[tenant, run] = Scheduling(weight, changed)
            line.reschedule()
        elif what in ("join", "front"):
            waiting.append(one := waiter(tenant, number, run=run))
            line.add(one, front=what == "front")
        elif what == "serve" and waiting:
            [one] = served(line, 1)
            own = [other for other in waiting if other.tenant == one.tenant]
            assert priority(one) == max(map(priority, own))
            assert all(one.place <= other.place for other in own if other.run == one.run)
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
        for name in "ab":
            own = [one for one in in_line if one.tenant == name]
            assert [priority(one) for one in own] == sorted(map(priority, own), reverse=True)
        for one in waiting:
            before = [
                other for other in in_line if other.tenant == one.tenant and priority(other) > priority(one)
            ]
            assert line.ahead(one).higher == len(before)
            assert line.priority(*one.path) == priority(one)
    assert len(served(line, len(waiting))) == len(waiting)
    assert not len(line)


@given(
    st.dictionaries(st.sampled_from("rst"), st.tuples(st.integers(1, 9), st.integers(0, 1))),
    st.integers(1, 60),
)
@settings(deadline=None)
def test_weights_hold_within_a_priority(given: dict[str, tuple[int, int]], turns: int) -> None:
    runs: Runs = {("a", run): Scheduling(*one) for run, one in given.items()}
    line = filled(runs, [("a", run) for run in "rst"], each=200)
    found = Counter(one.run for one in served(line, turns))
    highest = max(runs.get(("a", run), Scheduling()).priority for run in "rst")
    sharing = {
        run: one.weight for run in "rst" if (one := runs.get(("a", run), Scheduling())).priority == highest
    }
    assert found.keys() <= sharing.keys()
    for run, weight in sharing.items():
        assert abs(found[run] - turns * weight / sum(sharing.values())) <= len(sharing)


def some_of_the_high_one(world: Trainers) -> None:
    world.arrive("high", every=2.4)  # some 62 % of the slots
    world.keep("low", 60)


def both_share(world: Trainers) -> None:
    world.scheduling["mid"] = Scheduling(3)
    world.arrive("high", every=3.0)
    world.keep("mid", 60)
    world.keep("low", 60)


@pytest.mark.parametrize("load", [some_of_the_high_one, both_share])
def test_the_higher_one_hardly_waits_and_the_lower_ones_know_their_wait(load: object) -> None:
    assert callable(load)
    world = Trainers(seed=3)
    world.scheduling["high"] = HIGH
    load(world)
    world.run(2400.0)
    late = world.since(300.0)
    high = [one.waited for one in late if one.run == "high"]
    assert sum(high) / len(high) < LONGEST / SLOTS * 2, "one sandbox ends every 1.5 s"
    turns = Counter(one.run for one in late)
    if turns["mid"]:
        assert turns["mid"] / turns["low"] == pytest.approx(3.0, rel=0.05)
    for run in ("low", *(["mid"] if turns["mid"] else [])):
        assert close(late, run) >= 0.8, run


def test_a_burst_of_higher_ones_is_in_the_estimate_of_lower_ones() -> None:
    world = Trainers(seed=4)
    world.scheduling["high"] = HIGH
    world.keep("low", 40)
    world.run(300.0)
    world.stop("low")
    before = len(world.served)
    for run, creates in {"high": 80, "low": 100}.items():
        for _ in range(creates):
            world.ask(run)
    world.run(3000.0)
    served_now = world.served[before:]
    assert close(served_now, "high") >= 0.8
    assert close(served_now, "low") >= 0.8


def test_a_lower_one_of_which_nothing_is_known_has_no_estimate_while_higher_ones_take_all() -> None:
    world = Trainers(seed=5)
    world.scheduling["high"] = HIGH
    world.keep("high", 100)
    world.run(200.0)
    world.ask("low")
    [ask] = [ask for ask, (run, *_) in world.asked.items() if run == "low"]
    world.run(300.0)
    assert world.core.estimated_wait(ask, world.now) is None
    world.stop("high")
    world.set("low", Scheduling(priority=10))
    assert world.core.position(ask) == 1
    assert world.core.estimated_wait(ask, world.now) == pytest.approx(1.5, rel=0.5)
    world.run(310.0)
    assert ask not in world.asked, "a changed priority holds for one that waits"
