"""Starts of a node, placed by the controller and by the scheduler in any order: never more at once than the limit."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from sandlot_controller.plan.placement.ledger import NoNode
from sandlot_controller.plan.placement.needs import Needs
from sandlot_controller.plan.placement.waiting import scheduler_share

from tests.controller.placing import ledger_of, needs, node

POOL, COLD = 2, 3  # limits of starts
KINDS = ((needs(100), POOL), (needs(100), COLD), (needs(200), COLD))
ROOM = 500  # of a node
WALKS, STEPS = 300, 120


@dataclass
class Real:
    """A pod as the API server, the scheduler and the kubelets have it."""

    needs: Needs
    cap: int
    chosen: str | None
    node: str | None = None
    ready: bool = False
    is_created: bool = False  # the API server has it
    is_refused: bool = False  # by the scheduler

    def meant_for(self) -> str | None:
        return self.node or self.chosen


class TwoPlacers:
    """The controller's watch is late by any number of changes; requests arrive, and pods are bound, in any order."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.ledger, self.ids = ledger_of(), itertools.count()
        self.nodes: list[str] = []
        self.pods: dict[str, Real] = {}
        self.news: list[Callable[[], None]] = []  # what the watches will show, in this order
        self.seen: Counter[str] = Counter()
        self.add_node()
        self.show()

    def step(self) -> None:
        steps = (self.start, self.start, self.replace, self.show, self.show, self.arrive, self.schedule)
        self.random.choice((*steps, self.up, self.over, self.add_node, self.drop_node))()
        starts = Counter(pod.meant_for() for pod in self.pods.values() if not pod.ready)
        del starts[None]
        assert max(starts.values(), default=0) <= COLD, starts

    def settle(self) -> None:
        """Left alone, no waiting pod has room, and no kind of pod waits for its turn."""
        for _ in range(2 + len(self.pods)):  # each may replace only one
            while self.news:
                self.show()
            for act in (self.arrive, self.schedule, self.up):
                act(everything=True)
            self.replace()
        waiting = {pod.needs for pod in self.pods.values() if pod.meant_for() is None}
        assert not any(self.ledger.has_room(each) for each in waiting)
        found = {self.ledger.choose(what, cap=cap) for what, cap in KINDS}
        assert not found & {NoNode.AT_CAP, NoNode.ON_THE_WAY}, found

    # The controller.

    def start(self) -> None:
        """Choose nodes, as a plan of pools or the queue of cold starts does."""
        what, cap = self.random.choice(KINDS)
        for missing in range(self.random.randint(1, 6), 0, -1):
            if self.ledger.is_scheduler_next():
                return
            found = self.ledger.choose(what, cap=cap, wanted=missing)
            self.seen[found.name if isinstance(found, NoNode) else "chosen"] += 1
            if isinstance(found, NoNode) and found is not NoNode.FULL:
                return
            name, chosen = f"i-{next(self.ids)}", found if isinstance(found, str) else None
            self.pods[name] = Real(what, cap, chosen)
            self.put(name, self.pods[name])

    def replace(self) -> None:
        """Delete waiting pods that could get a node, unless the scheduler was faster."""
        for name in self.ledger.replaceable():
            if (pod := self.pods.get(name)) is not None and pod.is_created and pod.node is None:
                self.seen["replaced"] += 1
                self.end(name)

    def show(self) -> None:
        """The watches come as far as some changes more."""
        many = self.random.randint(1, 12)
        for news in self.news[:many]:
            news()
        del self.news[:many]

    def put(self, name: str, pod: Real) -> None:
        """Tell the ledger of a pod as it is now."""
        if (where := pod.meant_for()) is None:
            self.ledger.put_waiting(name, pod.needs, cap=pod.cap)
        else:
            is_bound = pod.node is not None
            self.ledger.put(name, pod.needs, node=where, starting=not pod.ready, is_bound=is_bound)

    # The cluster.

    def add_node(self) -> None:
        if len(self.nodes) < 3:
            self.nodes.append(f"n{next(self.ids)}")
            self.news.append(partial(self.ledger.put_node, node(self.nodes[-1], cpu=ROOM)))

    def drop_node(self) -> None:
        """An autoscaler takes a node away that no pod is on or on the way to."""
        used = {pod.meant_for() for pod in self.pods.values()}
        if free := [name for name in self.nodes if name not in used]:
            self.nodes.remove(free[0])
            self.news.append(partial(self.ledger.drop_node, free[0]))

    def arrive(self, *, everything: bool = False) -> None:
        """The API server has the requests for some pods."""
        for name in self.some(lambda pod: not pod.is_created, everything):
            self.pods[name].is_created = True
            self.changed(name)

    def schedule(self, *, everything: bool = False) -> None:
        """The scheduler finds nodes for some pods, or refuses those that were chosen for them."""
        for name in self.some(lambda pod: pod.is_created and pod.node is None, everything):
            pod = self.pods[name]
            if allowed := [each for each in self.nodes if self.admits(each, pod)]:
                pod.node = self.random.choice(allowed)
                self.seen["bound" if pod.chosen else "bound by the scheduler's choice"] += 1
                self.changed(name)
            elif pod.chosen is not None and not pod.is_refused:
                pod.is_refused = True
                self.news.append(partial(self.refused, name))

    def admits(self, where: str, pod: Real) -> bool:
        here = [one for one in self.pods.values() if one.node == where]
        used = sum(dict(one.needs.requests)["cpu"] for one in here)
        fits = used + dict(pod.needs.requests)["cpu"] <= ROOM
        return fits and (pod.chosen == where if pod.chosen else len(here) < scheduler_share(pod.cap))

    def refused(self, name: str) -> None:
        """The controller sees it, and deletes the pod unless it was bound meanwhile."""
        self.ledger.reject(name, ["cpu"], now=0.0)
        if (pod := self.pods.get(name)) is not None and pod.node is None:
            self.end(name)

    def up(self, *, everything: bool = False) -> None:
        for name in self.some(lambda pod: pod.node is not None and not pod.ready, everything):
            self.pods[name].ready = True
            self.changed(name)

    def over(self) -> None:
        """Pods end, and the scheduler knows it before the controller."""
        for name in self.some(lambda pod: pod.ready):
            self.end(name)

    def some(self, which: Callable[[Real], bool], everything: bool = False) -> list[str]:
        """Return some of these pods, or all, in any order."""
        names = [name for name, pod in self.pods.items() if which(pod)]
        return self.random.sample(names, len(names) if everything else self.random.randint(0, len(names)))

    def changed(self, name: str) -> None:
        self.news.append(partial(self.put, name, replace(self.pods[name])))

    def end(self, name: str) -> None:
        del self.pods[name]
        self.news.append(partial(self.ledger.drop, name))


def test_no_node_has_more_starts_than_its_limit_whoever_places_them() -> None:
    seen: Counter[str] = Counter()
    for seed in range(WALKS):
        walk = TwoPlacers(Random(seed))
        for _ in range(STEPS):
            walk.step()
        walk.settle()
        seen += walk.seen
    # Each part of it happens.
    happened = {*NoNode.__members__, "chosen", "bound", "bound by the scheduler's choice", "replaced"}
    assert {what for what, count in seen.items() if count > WALKS // 10} == happened, seen
