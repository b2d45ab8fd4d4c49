"""The pool planner: never more than the size or a node's cap, no claimed pod taken away, always to its size in the end."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sandlot_controller.plan.pool_pods import PodView, PoolPods
from sandlot_controller.plan.pools import Plan, Planner, PlanSettings, PoolView

KEY, NEW = "a" * 16, "b" * 16


def ready(name: str, *, key: str = KEY, age: float = 1.0, claimed: bool = False) -> PodView:
    return PodView(name, key, since=-age, node="n1", ready_since=0.5, claimed=claimed, askable=True)


def pool_of(name: str, build: str, size: int, pods: Iterable[PodView] = ()) -> PoolView:
    return PoolView(name, build, size, PoolPods(pods))


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


@dataclass
class Real:
    """A pod as the cluster has it; `shown` is what the watch has told of it."""

    pool: str
    view: PodView
    shown: PodView | None = None


class Cluster(RuleBasedStateMachine):
    """Claims, failures, rolls, lost answers and a late watch, in any order."""

    CAP = 3

    @initialize(nodes=st.integers(1, 3), size=st.integers(0, 8))
    def begin(self, nodes: int, size: int) -> None:
        self.planner = Planner(PlanSettings(starts_per_node=self.CAP))
        self.nodes = [f"n{number}" for number in range(nodes)]
        self.now, self.ids = 1.0, itertools.count()
        self.pods: dict[str, Real] = {}
        self.sizes = {"p": size, "q": 2}
        self.keys = {"p": KEY, "q": KEY}
        self.retiring: dict[str, str] = {}
        self.claimed: set[str] = set()

    def views(self) -> list[PoolView]:
        return [
            pool_of(
                pool,
                self.keys[pool],
                self.sizes[pool],
                [real.shown for real in self.pods.values() if real.pool == pool and real.shown],
            )
            for pool in self.sizes
        ]

    def on(self, node: str, *, shown: bool) -> int:
        views = [real.shown if shown else real.view for real in self.pods.values()]
        return sum(view is not None and view.node == node and view.ready_since is None for view in views)

    @rule(lost=st.booleans())
    def act(self, lost: bool) -> None:
        """One round of the loop."""
        starting = {node: self.on(node, shown=True) for node in self.nodes}
        unplaced = sum(bool(real.shown and real.shown.node is None) for real in self.pods.values())
        made = self.planner.plan(self.views(), starting=starting, unplaced=unplaced, now=self.now)
        for pool in made.creates:
            name = f"i-{next(self.ids)}"
            self.planner.expect(pool, name, now=self.now)
            self.pods[name] = Real(pool, PodView(name, self.keys[pool], avoids=frozenset(made.avoid)))
        for pool, pod in made.retire:
            assert self.retiring.get(pool) not in self.pods, "one at a time"
            self.planner.retiring(pool, pod.name)
            self.retiring[pool] = pod.name
        for pool in list(self.retiring) if not lost else []:
            self.answer(pool)

    def answer(self, pool: str) -> None:
        """The sidecar's word: nobody else knows of a claim that was accepted a moment ago."""
        name = self.retiring.pop(pool)
        gone = name in self.pods and name not in self.claimed
        if gone:
            del self.pods[name]
        self.planner.retired(pool, name, gone=gone or name not in self.pods, now=self.now)

    @rule(data=st.data())
    def schedule(self, data: st.DataObject) -> None:
        """The scheduler takes any node that the pod allows."""
        for real in self.pods.values():
            allowed = [node for node in self.nodes if node not in real.view.avoids]
            if real.view.node is None and allowed:
                real.view = replace(real.view, node=data.draw(st.sampled_from(allowed)), askable=True)
                return

    @rule(data=st.data())
    def show(self, data: st.DataObject) -> None:
        """The watch comes as far as one pod."""
        if self.pods:
            real = self.pods[data.draw(st.sampled_from(sorted(self.pods)))]
            real.shown = real.view
            self.planner.seen(real.pool, real.view.name)

    @rule(data=st.data())
    def up(self, data: st.DataObject) -> None:
        names = [name for name, real in self.pods.items() if real.view.node and real.view.ready_since is None]
        if names:
            real = self.pods[data.draw(st.sampled_from(sorted(names)))]
            real.view = replace(real.view, ready_since=self.now)

    @rule(data=st.data(), told=st.booleans())
    def claim(self, data: st.DataObject, told: bool) -> None:
        """A gateway does; its record comes at once or later."""
        names = sorted(
            name
            for name, real in self.pods.items()
            if real.view.ready_since is not None and name not in self.claimed
        )
        if names:
            name = data.draw(st.sampled_from(names))
            self.claimed.add(name)
            if told:
                self.tell(name)

    def tell(self, name: str) -> None:
        real = self.pods[name]
        real.view = real.shown = replace(real.view, claimed=True)
        self.planner.seen(real.pool, name)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.pods)))
        real = self.pods.pop(name)
        self.claimed.discard(name)
        self.planner.seen(real.pool, name)
        self.planner.failed(real.pool, now=self.now, message="died")

    @rule(size=st.integers(0, 8), key=st.sampled_from([KEY, NEW]))
    def change(self, size: int, key: str) -> None:
        self.sizes["p"], self.keys["p"] = size, key
        self.peak = 0

    @rule(seconds=st.floats(0.01, 5.0))
    def wait(self, seconds: float) -> None:
        """Shorter than an expectation in all: the watch is late, not broken."""
        for real in self.pods.values():
            real.shown = real.view
            self.planner.seen(real.pool, real.view.name)
        self.now += seconds

    @invariant()
    def no_node_starts_more_than_its_cap(self) -> None:
        for node in self.nodes:
            waiting = sum(
                real.view.node is None and node not in real.view.avoids for real in self.pods.values()
            )
            # What is shown late was seen starting for longer, never shorter: the bound holds for the truth.
            assert self.on(node, shown=False) + waiting <= self.CAP

    @invariant()
    def a_claimed_pod_is_not_taken_away(self) -> None:
        assert self.claimed <= self.pods.keys()

    def teardown(self) -> None:
        """Left alone, every pool comes to its size, of its template."""
        if not hasattr(self, "planner"):
            return
        for _ in range(200):
            for pool in list(self.retiring):
                self.answer(pool)
            for name in self.claimed:
                self.tell(name)
            for real in self.pods.values():
                node = real.view.node or next((n for n in self.nodes if n not in real.view.avoids), None)
                since = real.view.ready_since or self.now
                real.view = real.shown = replace(real.view, node=node, askable=True, ready_since=since)
            self.now += 31.0
            before = {pool: self.free(pool) for pool in self.sizes}
            self.act(lost=False)
            for pool, size in self.sizes.items():
                grown = len(self.free(pool)) - len(before[pool])
                assert grown <= max(0, size - len(self.current(pool, before[pool]))), "more than were missing"
            self.no_node_starts_more_than_its_cap()
        for pool, size in self.sizes.items():
            assert len(self.free(pool)) == size
            assert len(self.current(pool, self.free(pool))) == size

    def free(self, pool: str) -> list[PodView]:
        return [r.view for n, r in self.pods.items() if r.pool == pool and n not in self.claimed]

    def current(self, pool: str, views: list[PodView]) -> list[PodView]:
        return [view for view in views if view.build == self.keys[pool]]

    @invariant()
    def never_more_than_wanted(self) -> None:
        """Of pods that the planner cannot know to be claimed or dead there are none too many."""
        if not hasattr(self, "planner"):
            return
        made = self.planner.plan(
            self.views(), starting={n: self.on(n, shown=True) for n in self.nodes}, unplaced=0, now=self.now
        )
        for pool, size in self.sizes.items():
            unseen = sum(real.pool == pool and real.shown is None for real in self.pods.values())
            seen = sum(
                bool(
                    real.pool == pool
                    and real.shown
                    and not real.shown.claimed
                    and real.shown.build == self.keys[pool]
                )
                for real in self.pods.values()
            )
            wanted = made.creates.count(pool)
            assert wanted == 0 or wanted + unseen + seen <= size


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
