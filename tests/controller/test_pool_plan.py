"""The pool planner, case by case: when it makes pods, when it waits, and which it takes away."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sandlot_controller.plan.pool_pods import PodView
from sandlot_controller.plan.pools import Plan, Planner, PlanSettings, PoolView

from tests.controller.pool_views import KEY, NEW, pool_of


def ready(name: str, *, key: str = KEY, age: float = 1.0, claimed: bool = False) -> PodView:
    return PodView(name, key, since=-age, node="n1", ready_since=0.5, claimed=claimed, askable=True)


def plan(
    planner: Planner, view: PoolView, *, now: float = 1.0, starting: dict[str, int] | None = None
) -> Plan:
    return planner.plan([view], starting={"n1": 0} if starting is None else starting, unplaced=0, now=now)


def test_a_created_pod_counts_before_the_watch_shows_it() -> None:
    planner = Planner()
    view = pool_of("p", KEY, 2)
    assert plan(planner, view).creates == ["p", "p"]
    planner.expect("p", "i-1", now=1.0)
    planner.expect("p", "i-2", now=1.0)
    again = plan(planner, view, now=2.0)
    assert again.creates == []
    assert again.again_at == pytest.approx(31.0)


def test_a_pod_that_never_shows_up_is_made_again() -> None:
    planner = Planner()
    view = pool_of("p", KEY, 1)
    plan(planner, view)
    planner.expect("p", "i-1", now=1.0)
    assert plan(planner, view, now=31.5).creates == ["p"]


def test_nodes_at_their_cap_are_avoided_and_the_fullest_other_sets_the_pace() -> None:
    planner = Planner(PlanSettings(starts_per_node=4))
    made = plan(planner, pool_of("p", KEY, 20), starting={"n1": 4, "n2": 3, "n3": 0})
    assert made.creates == ["p"]
    assert made.avoid == ("n1",)
    assert plan(planner, pool_of("p", KEY, 20), starting={"n1": 4, "n2": 5}).creates == []


def test_a_refill_comes_after_what_claimed_and_not_much_later() -> None:
    planner = Planner(PlanSettings(yields=0.3, longest_yield=2.0))
    plan(planner, pool_of("p", KEY, 2, [ready("i-1"), ready("i-2")]), now=0.0)
    short = pool_of("p", KEY, 2, [ready("i-1"), ready("i-2", claimed=True)])
    now = 1.0
    planner.claimed("p", now=now)
    while not (made := plan(planner, short, now=now)).creates:
        assert made.again_at is not None
        assert 0 < made.again_at - now < 0.31
        now += 0.1
        planner.claimed("p", now=now)
    assert now == pytest.approx(3.0, abs=0.15)
    full = pool_of("p", KEY, 2, [ready("i-1"), ready("i-3")])
    assert plan(planner, full, now=now).creates == []
    planner.claimed("p", now=now)
    assert plan(planner, short, now=now).creates == []
    assert plan(planner, short, now=now + 0.3).creates == ["p"]


def test_a_burst_that_takes_the_whole_pool_is_not_refilled_before_its_end() -> None:
    planner = Planner(PlanSettings(yields=0.3, longest_yield=2.0))
    plan(planner, pool_of("p", KEY, 2, [ready("i-1"), ready("i-2")]), now=0.0)
    empty = pool_of("p", KEY, 2, [ready("i-1", claimed=True), ready("i-2", claimed=True)])
    planner.claimed("p", now=1.0)
    assert plan(planner, empty, now=1.0).creates == []
    planner.claimed("p", now=1.25)  # word of it comes late
    assert plan(planner, empty, now=1.4).creates == []
    assert plan(planner, empty, now=1.55).creates == ["p", "p"]


def test_without_a_node_a_few_pods_wait_for_an_autoscaler() -> None:
    planner = Planner(PlanSettings(starts_per_node=4))
    assert len(plan(planner, pool_of("p", KEY, 20), starting={}).creates) == 4


def test_failures_back_off_and_one_start_tries_again() -> None:
    planner = Planner()
    view = pool_of("p", KEY, 3)
    plan(planner, view, now=0.0)
    now, waits = 0.0, []
    for _ in range(8):
        planner.failed("p", now=now, message="no such image")
        again = plan(planner, view, now=now).again_at
        assert again is not None
        waits.append(again - now)
        now = again
        assert plan(planner, view, now=now).creates == ["p"]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert planner.trouble("p") == (8, "no such image")


def test_a_pod_that_stays_up_ends_the_back_off() -> None:
    planner = Planner(PlanSettings(settle=3.0))
    plan(planner, pool_of("p", KEY, 3), now=0.0)
    planner.failed("p", now=1.0, message="x")
    up = replace(ready("i-1"), ready_since=5.0)
    view = pool_of("p", KEY, 3, [up])
    early = plan(planner, view, now=6.0)
    assert early.creates == ["p"]
    assert early.again_at == pytest.approx(8.0)
    assert plan(planner, view, now=8.0).creates == ["p", "p"]
    assert planner.trouble("p") == (0, None)


def test_a_new_template_is_tried_at_once() -> None:
    planner = Planner()
    plan(planner, pool_of("p", KEY, 1), now=0.0)
    planner.failed("p", now=0.0, message="x")
    assert plan(planner, pool_of("p", KEY, 1), now=0.1).creates == []
    assert plan(planner, pool_of("p", NEW, 1), now=0.1).creates == ["p"]


def test_a_roll_brings_new_ones_first_and_takes_old_ones_one_at_a_time() -> None:
    planner = Planner()
    old = [ready("i-1", age=9), ready("i-2", age=8)]
    first = plan(planner, pool_of("p", NEW, 2, old))
    assert (first.creates, first.retire) == (["p", "p"], [])
    new = [*old, ready("i-3", key=NEW), PodView("i-4", NEW, node="n1")]
    second = plan(planner, pool_of("p", NEW, 2, new))
    assert (second.creates, second.retire) == ([], [("p", old[0])])
    planner.retiring("p", "i-1")
    assert plan(planner, pool_of("p", NEW, 2, new)).retire == []
    planner.retired("p", "i-1", gone=True, now=2.0)
    assert plan(planner, pool_of("p", NEW, 2, new[1:])).retire == []
    assert plan(planner, pool_of("p", NEW, 2, [old[1], new[2], ready("i-4", key=NEW)])).retire == [
        ("p", old[1])
    ]


def test_an_old_one_makes_room_where_the_cluster_is_full() -> None:
    stuck = PodView("i-3", NEW, unschedulable=True)
    old = ready("i-1")
    assert plan(Planner(), pool_of("p", NEW, 1, [old, stuck])).retire == [("p", old)]


def test_a_pod_that_waits_for_a_node_it_may_use_by_now_is_replaced() -> None:
    stuck = PodView("i-3", KEY, unschedulable=True, avoids=frozenset({"n1"}))
    view = pool_of("p", KEY, 1, [stuck])
    assert plan(Planner(), view, starting={"n1": 4}).retire == []
    assert plan(Planner(), view, starting={"n1": 3}).retire == [("p", stuck)]


def test_a_refusal_is_remembered_and_the_next_one_is_asked() -> None:
    planner = Planner(PlanSettings(refusal=30.0))
    view = pool_of("p", KEY, 0, [ready("i-1", age=1), ready("i-2", age=2)])
    ((_, first),) = plan(planner, view).retire
    planner.retiring("p", first.name)
    planner.retired("p", first.name, gone=False, now=1.0)
    ((_, second),) = plan(planner, view).retire
    assert second.name != first.name
    planner.retiring("p", second.name)
    planner.retired("p", second.name, gone=False, now=1.0)
    nothing = plan(planner, view)
    assert nothing.retire == []
    assert nothing.again_at == pytest.approx(31.0)


def test_claimed_ones_do_not_count_and_stay() -> None:
    view = pool_of("p", KEY, 1, [ready("i-1", claimed=True), ready("i-2", claimed=True)])
    made = plan(Planner(), view)
    assert (made.creates, made.retire) == (["p"], [])


def test_the_emptiest_pool_goes_first() -> None:
    views = [pool_of("big", KEY, 100, [ready(f"i-{n}") for n in range(50)]), pool_of("small", NEW, 1)]
    made = Planner(PlanSettings(starts_per_node=3)).plan(views, starting={"n1": 0}, unplaced=0, now=1.0)
    assert made.creates[0] == "small"
    assert len(made.creates) == 3
