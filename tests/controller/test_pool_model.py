"""The pool planner, events in any order: never too many pods, no claimed one taken away, its size in the end."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sandlot_controller.plan.pool_pods import PodView
from sandlot_controller.plan.pools import Planner, PlanSettings, PoolView
from sandlot_controller.plan.retirements import Attempt

from tests.controller.placing import ledger_of, needs, node
from tests.controller.pool_views import KEY, NEW, pool_of


@dataclass
class Real:
    """A pod as the cluster has it; `shown` is what the watch has told of it."""

    pool: str
    view: PodView
    chosen: str
    shown: PodView | None = None


class Cluster(RuleBasedStateMachine):
    """Claims, failures, rolls, lost answers and a late watch, in any order."""

    CAP = 3

    @initialize(nodes=st.integers(1, 3), size=st.integers(0, 8))
    def begin(self, nodes: int, size: int) -> None:
        self.planner = Planner(PlanSettings(starts_per_node=self.CAP))
        self.nodes = [f"n{number}" for number in range(nodes)]
        self.ledger = ledger_of(*(node(name) for name in self.nodes))
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
        made = self.planner.plan(self.views(), ledger=self.ledger, now=self.now)
        for start in made.creates:
            name = f"i-{next(self.ids)}"
            assert start.node is not None
            self.planner.expect(start.pool, name, now=self.now)
            self.ledger.put(name, needs(), node=start.node, starting=True)
            self.pods[name] = Real(start.pool, PodView(name, self.keys[start.pool]), start.node)
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
            self.remove(name)
        attempt = Attempt.GONE if gone or name not in self.pods else Attempt.OWNED
        self.planner.retired(pool, name, attempt, now=self.now)

    def remove(self, name: str) -> Real:
        self.ledger.drop(name)
        return self.pods.pop(name)

    @rule()
    def schedule(self) -> None:
        """The scheduler binds a pod to the node chosen for it."""
        for real in self.pods.values():
            if real.view.node is None:
                real.view = replace(real.view, node=real.chosen, askable=True)
                return

    @rule(data=st.data())
    def show(self, data: st.DataObject) -> None:
        """The watch comes as far as one pod."""
        if self.pods:
            self.reveal(self.pods[data.draw(st.sampled_from(sorted(self.pods)))])

    def reveal(self, real: Real) -> None:
        real.shown = real.view
        self.planner.seen(real.pool, real.view.name)
        self.ledger.put(real.view.name, needs(), node=real.chosen, starting=real.view.ready_since is None)

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
        real.view = replace(real.view, claimed=True)
        self.reveal(real)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.pods)))
        real = self.remove(name)
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
            self.reveal(real)
        self.now += seconds

    @invariant()
    def no_node_starts_more_than_its_cap(self) -> None:
        for name in self.nodes:
            waiting = sum(real.view.node is None and real.chosen == name for real in self.pods.values())
            # What is shown late was seen starting for longer, never shorter: the bound holds for the truth.
            assert self.on(name, shown=False) + waiting <= self.CAP

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
                since = real.view.ready_since or self.now
                real.view = replace(real.view, node=real.chosen, askable=True, ready_since=since)
                self.reveal(real)
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
        made = self.planner.plan(self.views(), ledger=self.ledger, now=self.now)
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
            wanted = sum(start.pool == pool for start in made.creates)
            assert wanted == 0 or wanted + unseen + seen <= size


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
