"""The pool planner, case by case: when it makes pods, when it waits, and which it takes away."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sandlot_controller.plan.placement.ledger import Ledger
from sandlot_controller.plan.pool_pods import PodView, PoolPods
from sandlot_controller.plan.pools import Plan, Planner, PlanSettings, PoolView, Start
from sandlot_controller.plan.retirements import SOONEST, Attempt

from tests.controller.placing import ledger_of, needs, node
from tests.controller.pool_views import KEY, NEW, pool_of


def ready(name: str, *, key: str = KEY, age: float = 1.0, claimed: bool = False, on: str = "n1") -> PodView:
    return PodView(name, key, since=-age, node=on, ready_since=0.5, claimed=claimed, askable=True)


def starting(**counts: int) -> Ledger:
    """Nodes with so many starting pods each."""
    ledger = ledger_of(*(node(name) for name in counts))
    for name, count in counts.items():
        for number in range(count):
            ledger.put(f"{name}-{number}", needs(), node=name, starting=True)
    return ledger


def plan(planner: Planner, view: PoolView, *, now: float = 1.0, ledger: Ledger | None = None) -> Plan:
    return planner.plan([view], ledger=starting(n1=0) if ledger is None else ledger, now=now)


P = Start("p", "n1")


def test_a_created_pod_counts_before_the_watch_shows_it() -> None:
    planner = Planner()
    view = pool_of("p", KEY, 2)
    assert plan(planner, view).creates == [P, P]
    planner.expect("p", "i-1", now=1.0)
    planner.expect("p", "i-2", now=1.0)
    again = plan(planner, view, now=2.0)
    assert again.creates == []
    assert again.again_at == pytest.approx(31.0)


def test_a_pod_of_a_pool_that_is_gone_is_not_expected() -> None:
    planner = Planner()
    plan(planner, pool_of("p", KEY, 1))
    assert planner.expect("p", "i-1", now=1.0)
    planner.plan([], ledger=starting(n1=0), now=1.0)
    assert not planner.expect("p", "i-1", now=2.0)


def test_a_pod_that_never_shows_up_is_made_again() -> None:
    planner = Planner()
    view = pool_of("p", KEY, 1)
    plan(planner, view)
    planner.expect("p", "i-1", now=1.0)
    assert plan(planner, view, now=31.5).creates == [P]


def test_nodes_at_their_cap_get_no_start_and_the_others_as_many_as_they_may() -> None:
    planner = Planner(PlanSettings(starts_per_node=4))
    made = plan(planner, pool_of("p", KEY, 20), ledger=starting(n1=4, n2=3, n3=1))
    assert made.creates == [Start("p", node) for node in ("n2", "n3", "n3", "n3")]
    assert plan(planner, pool_of("p", KEY, 20), ledger=starting(n1=4, n2=5)).creates == []


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
    assert plan(planner, short, now=now + 0.3).creates == [P]


def test_a_burst_that_takes_the_whole_pool_is_not_refilled_before_its_end() -> None:
    planner = Planner(PlanSettings(yields=0.3, longest_yield=2.0))
    plan(planner, pool_of("p", KEY, 2, [ready("i-1"), ready("i-2")]), now=0.0)
    empty = pool_of("p", KEY, 2, [ready("i-1", claimed=True), ready("i-2", claimed=True)])
    planner.claimed("p", now=1.0)
    assert plan(planner, empty, now=1.0).creates == []
    planner.claimed("p", now=1.25)  # word of it comes late
    assert plan(planner, empty, now=1.4).creates == []
    assert plan(planner, empty, now=1.55).creates == [P, P]


def test_without_a_node_a_few_pods_wait_for_an_autoscaler() -> None:
    planner = Planner(PlanSettings(starts_per_node=4))
    assert plan(planner, pool_of("p", KEY, 20), ledger=starting()).creates == 3 * [Start("p", None)]
    ledger = starting()
    ledger.put_waiting("i-1", needs(), cap=4)
    assert plan(planner, pool_of("p", KEY, 20), ledger=ledger).creates == 2 * [Start("p", None)]


def test_pods_that_wait_keep_no_others_from_showing_an_autoscaler_how_many_nodes_are_wanted() -> None:
    ledger = ledger_of(node("n1", cpu=500))
    for number in range(5):
        ledger.put(f"i-{number}", needs(), node="n1", starting=False)
    ledger.put_waiting("i-5", needs(), cap=3)
    stuck = PodView("i-5", KEY, unschedulable=True)
    planned = plan(Planner(PlanSettings(starts_per_node=3)), pool_of("p", KEY, 20, [stuck]), ledger=ledger)
    assert planned.creates == 7 * [Start("p", None)]  # two on each of four nodes


def test_a_pool_that_no_node_will_ever_fit_does_not_hide_the_others_from_an_autoscaler() -> None:
    planner, ledger, gpu = Planner(PlanSettings(starts_per_node=4)), starting(), needs(gpu=8)
    for number in range(3):
        ledger.put_waiting(f"gpu-{number}", gpu, cap=4)
    views = [PoolView("gpu", KEY, 20, PoolPods(), gpu), pool_of("p", KEY, 20)]
    assert planner.plan(views, ledger=ledger, now=1.0).creates == 3 * [Start("p", None)]
    assert planner.plan(views, ledger=starting(), now=1.0).creates.count(Start("gpu", None)) == 3


def test_nothing_starts_while_a_pod_without_a_node_is_about_to_get_one() -> None:
    ledger = starting(n1=0)
    ledger.put_waiting("i-1", needs(), cap=4)
    assert plan(Planner(), pool_of("p", KEY, 20), ledger=ledger).creates == []
    ledger.put("i-1", needs(), node="n1", starting=True)
    assert plan(Planner(), pool_of("p", KEY, 20), ledger=ledger).creates == [P, P, P]


def test_no_more_pods_are_on_their_way_than_an_api_server_takes_at_once() -> None:
    planner = Planner(PlanSettings(most_expected=10, starts_per_node=100))
    view = pool_of("p", KEY, 40)
    assert len(plan(planner, view).creates) == 10
    for number in range(7):
        planner.expect("p", f"i-{number}", now=1.0)
    assert len(plan(planner, view).creates) == 3


def test_of_a_new_shape_one_is_tried() -> None:
    view = pool_of("p", KEY, 3, admitted=False)
    assert plan(Planner(), view).creates == [P]
    view = pool_of("p", KEY, 3, [PodView("i-1", KEY)], admitted=False)
    assert plan(Planner(), view).creates == []


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
        assert plan(planner, view, now=now).creates == [P]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert planner.trouble("p") == (8, "no such image")


def test_a_pod_that_stays_up_ends_the_back_off() -> None:
    planner = Planner(PlanSettings(settle=3.0))
    plan(planner, pool_of("p", KEY, 3), now=0.0)
    planner.failed("p", now=1.0, message="x")
    up = replace(ready("i-1"), ready_since=5.0)
    view = pool_of("p", KEY, 3, [up])
    early = plan(planner, view, now=6.0)
    assert early.creates == [P]
    assert early.again_at == pytest.approx(8.0)
    assert plan(planner, view, now=8.0).creates == [P, P]
    assert planner.trouble("p") == (0, None)


def test_a_new_template_is_tried_at_once() -> None:
    planner = Planner()
    plan(planner, pool_of("p", KEY, 1), now=0.0)
    planner.failed("p", now=0.0, message="x")
    assert plan(planner, pool_of("p", KEY, 1), now=0.1).creates == []
    assert plan(planner, pool_of("p", NEW, 1), now=0.1).creates == [P]


def test_a_roll_brings_new_ones_first_and_takes_old_ones_one_at_a_time() -> None:
    planner = Planner()
    old = [ready("i-1", age=9), ready("i-2", age=8)]
    first = plan(planner, pool_of("p", NEW, 2, old))
    assert (first.creates, first.retire) == ([P, P], [])
    new = [*old, ready("i-3", key=NEW), PodView("i-4", NEW, node="n1")]
    second = plan(planner, pool_of("p", NEW, 2, new))
    assert (second.creates, second.retire) == ([], [("p", old[0])])
    planner.retiring("p", "i-1")
    assert plan(planner, pool_of("p", NEW, 2, new)).retire == []
    planner.retired("p", "i-1", Attempt.GONE, now=2.0)
    assert plan(planner, pool_of("p", NEW, 2, new[1:])).retire == []
    assert plan(planner, pool_of("p", NEW, 2, [old[1], new[2], ready("i-4", key=NEW)])).retire == [
        ("p", old[1])
    ]


def test_an_old_one_makes_room_where_the_cluster_is_full() -> None:
    stuck = PodView("i-3", NEW, unschedulable=True)
    old = ready("i-1")
    assert plan(Planner(), pool_of("p", NEW, 1, [old, stuck])).retire == [("p", old)]


def test_surplus_goes_from_the_emptiest_node_first() -> None:
    ledger = starting(n1=1, n2=3, n3=2)
    surplus = [
        ready("i-1", on="n2"),
        ready("i-2", on="n1"),
        ready("i-3", on="n1", age=2),
        ready("i-4", on="n3"),
    ]
    planner, left = Planner(), {pod.name: pod for pod in surplus}
    for wanted in ("i-2", "i-3", "i-4", "i-1"):
        ((_, pod),) = plan(planner, pool_of("p", KEY, 0, left.values()), ledger=ledger).retire
        assert pod.name == wanted
        planner.retiring("p", pod.name)
        planner.retired("p", pod.name, Attempt.GONE, now=1.0)
        del left[pod.name]


def test_a_pod_that_changed_before_its_deletion_is_asked_once_the_watch_shows_it() -> None:
    planner = Planner()
    unplaced, placed = PodView("i-1", KEY), ready("i-1")
    assert plan(planner, pool_of("p", KEY, 0, [unplaced]), now=1.0).retire == [("p", unplaced)]
    planner.retiring("p", "i-1")
    planner.retired("p", "i-1", Attempt.CHANGED, now=1.0)
    before = plan(planner, pool_of("p", KEY, 0, [unplaced]), now=1.5)
    assert (before.retire, before.again_at) == ([], 2.0)
    assert plan(planner, pool_of("p", KEY, 0, [placed]), now=2.0).retire == [("p", placed)]


def test_a_refusal_is_remembered_and_the_next_one_is_asked() -> None:
    planner = Planner()
    view = pool_of("p", KEY, 0, [ready("i-1", age=1), ready("i-2", age=2)])
    ((_, first),) = plan(planner, view).retire
    planner.retiring("p", first.name)
    planner.retired("p", first.name, Attempt.OWNED, now=1.0)
    ((_, second),) = plan(planner, view).retire
    assert second.name != first.name
    planner.retiring("p", second.name)
    planner.retired("p", second.name, Attempt.FAILED, now=1.0)
    nothing = plan(planner, view)
    assert nothing.retire == []
    assert nothing.again_at == pytest.approx(1.0 + SOONEST)


def test_a_pod_that_cannot_be_asked_is_asked_again_at_once_and_then_more_rarely() -> None:
    planner, view, now, waits = Planner(), pool_of("p", KEY, 0, [ready("i-1")]), 1.0, list[float]()
    for _ in range(9):
        assert len(plan(planner, view, now=now).retire) == 1
        planner.retiring("p", "i-1")
        planner.retired("p", "i-1", Attempt.FAILED, now=now)
        again = plan(planner, view, now=now)
        assert again.retire == []
        assert again.again_at is not None
        waits.append(again.again_at - now)
        now = again.again_at
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_claimed_ones_do_not_count_and_stay() -> None:
    view = pool_of("p", KEY, 1, [ready("i-1", claimed=True), ready("i-2", claimed=True)])
    made = plan(Planner(), view)
    assert (made.creates, made.retire) == ([P], [])


def test_the_emptiest_pool_goes_first() -> None:
    views = [pool_of("big", KEY, 100, [ready(f"i-{n}") for n in range(50)]), pool_of("small", NEW, 1)]
    made = Planner(PlanSettings(starts_per_node=3)).plan(views, ledger=starting(n1=0), now=1.0)
    assert made.creates[0] == Start("small", "n1")
    assert len(made.creates) == 3
