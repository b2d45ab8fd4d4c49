"""Where new pods go: never above a cap, never where they do not fit, as few nodes as possible, in whatever order told."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from sandlot_controller.plan.placement.ledger import Ledger, NoNode, Strategy
from sandlot_controller.plan.placement.needs import Needs
from sandlot_controller.plan.placement.nodes import NodeView, Taint

from tests.controller.placing import CAP, GIB, SMALL, ledger_of, needs, node

BIG, GPU = needs(700, 3 * GIB), needs(100, gpu=1)
KINDS = (SMALL, BIG, GPU)
NODES = ("n1", "n2", "n3")
PODS = tuple(f"i-{number}" for number in range(12))

shapes = st.builds(
    lambda cpu, gpu, usable: {"cpu": cpu, "gpu": gpu, "usable": usable},
    cpu=st.integers(0, 2000),
    gpu=st.integers(0, 2),
    usable=st.booleans(),
)
events = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(NODES), shapes),
    st.tuples(st.just("no node"), st.sampled_from(NODES)),
    st.tuples(
        st.just("pod"),
        st.sampled_from(PODS),
        st.sampled_from(KINDS),
        st.sampled_from([None, *NODES]),
        st.booleans(),
    ),
    st.tuples(st.just("no pod"), st.sampled_from(PODS)),
    st.tuples(st.just("choose"), st.sampled_from(KINDS)),
)


def put(ledger: Ledger, name: str, kind: Needs, where: str | None, starting: bool) -> None:
    if where is None:
        ledger.put_waiting(name, kind, cap=CAP)
    else:
        ledger.put(name, kind, node=where, starting=starting)


@dataclass
class Told:
    """What is true after some events, without any order."""

    nodes: dict[str, NodeView] = field(default_factory=dict)
    pods: dict[str, tuple[Needs, str | None, bool]] = field(default_factory=dict)

    def tell(self, ledger: Ledger, event: tuple[Any, ...]) -> None:
        match event:
            case ("node", name, {"cpu": cpu, "gpu": gpu, "usable": usable}):
                view = NodeView(name, {"cpu": cpu, "memory": 64 * GIB, "pods": 9, "gpu": gpu}, usable=usable)
                self.nodes[name] = view
                ledger.put_node(view)
            case ("no node", name):
                self.nodes.pop(name, None)
                ledger.drop_node(name)
            case ("pod", name, kind, where, starting):
                self.pods[name] = kind, where, starting
                put(ledger, name, kind, where, starting)
            case ("no pod", name):
                self.pods.pop(name, None)
                ledger.drop(name)
            case ("choose", kind):
                ledger.choose(kind, cap=CAP)
            case _:
                raise AssertionError(event)

    def starting(self, name: str) -> int:
        return sum(where == name and starting for _, where, starting in self.pods.values())

    def used(self, name: str) -> Counter[str]:
        total: Counter[str] = Counter()
        for kind, where, _ in self.pods.values():
            if where == name:
                total.update(dict(kind.requests))
        return total

    def fits(self, name: str, kind: Needs) -> bool:
        used, view = self.used(name), self.nodes[name]
        return view.usable and all(
            used[resource] + amount <= view.allocatable[resource] if resource in view.allocatable else False
            for resource, amount in kind.requests
        )

    def room(self, kind: Needs) -> int:
        """Return how many more such pods the nodes take."""
        free = 0
        for name, view in self.nodes.items():
            used = self.used(name)
            rooms = [(view.allocatable.get(one, 0) - used[one]) // amount for one, amount in kind.requests]
            free += max(0, min(rooms)) if view.usable else 0
        return free

    def awaits_scheduler(self, kind: Needs) -> bool:
        """Return whether the scheduler has a node for such a pod: it keeps to those with few pods."""
        few = [name for name in self.nodes if sum(on == name for _, on, _ in self.pods.values()) < CAP - 1]
        return any(self.fits(name, kind) for name in few)

    def new_nodes(self, kind: Needs, pods: int) -> int:
        """Return the nodes for so many more pods, each like the largest that could take one."""
        takes = [
            min(view.allocatable.get(resource, 0) // amount for resource, amount in kind.requests)
            for view in self.nodes.values()
            if view.usable
        ]
        return math.ceil(pods / max(takes)) if max(takes, default=0) else 1

    def fullness(self, name: str) -> float:
        used, view = self.used(name), self.nodes[name]
        return max((used[each] / room for each, room in view.allocatable.items() if room), default=0.0)


@given(st.lists(events, max_size=40), st.sampled_from(["pack", "spread"]), st.randoms())
def test_a_choice_fits_is_below_the_cap_and_is_the_best(
    happened: list[tuple[Any, ...]], strategy: Strategy, random: Any
) -> None:
    ledger, told = Ledger(strategy=strategy), Told()
    for event in happened:
        told.tell(ledger, event)
    anew = Ledger(strategy=strategy)
    facts: list[tuple[str, Any]] = [*told.nodes.items(), *told.pods.items()]
    random.shuffle(facts)
    for name, fact in facts:
        if isinstance(fact, NodeView):
            anew.put_node(fact)
        else:
            kind, where, starting = fact
            put(anew, name, kind, where, starting)
    for kind in KINDS:
        chosen = ledger.choose(kind, cap=CAP)
        assert anew.choose(kind, cap=CAP) == chosen
        room = [name for name in told.nodes if told.fits(name, kind)]
        below = [name for name in room if told.starting(name) < CAP]
        assert ledger.has_room(kind) == bool(room)
        waiting = [
            name for name, (needs_of, where, _) in told.pods.items() if (needs_of, where) == (kind, None)
        ]
        assert ledger.unplaced(kind) == len(waiting)
        if not below:
            most = (CAP - 1) * told.new_nodes(kind, len(waiting) + 1)
            may_wait = NoNode.FULL if len(waiting) < most else NoNode.ENOUGH_WAIT
            assert chosen is (NoNode.AT_CAP if room else may_wait)
            continue
        sign = -1 if strategy == "pack" else 1
        assert chosen == min(below, key=lambda name: (sign * told.fullness(name), name))
    replaced = ledger.replaceable()
    for kind in KINDS:
        waiting = [name for name, (one, where, _) in told.pods.items() if (one, where) == (kind, None)]
        room = len(waiting) if told.awaits_scheduler(kind) else told.room(kind)
        assert [name for name in replaced if name in waiting] == sorted(waiting)[:room]
    assert ledger.is_scheduler_next() == any(
        where is None and told.awaits_scheduler(kind) for kind, where, _ in told.pods.values()
    )
    for name in told.nodes:
        assert ledger.fullness(name) == told.fullness(name)


@given(st.integers(1, 50), st.integers(1, 9), st.integers(1, 9))
def test_an_autoscaler_adds_the_nodes_that_all_missing_ones_need(missing: int, room: int, cap: int) -> None:
    ledger = ledger_of(node("n1", cpu=100 * room))
    for number in range(room):
        ledger.put(f"i-{number}", SMALL, node="n1", starting=False)
    with ledger.trial() as place:
        found = [place(SMALL, cap, wanted) for wanted in range(missing, 0, -1)]
    on_a_new_node = min(room, max(1, cap - 1))  # by the constraint of those that wait
    assert math.ceil(found.count(NoNode.FULL) / on_a_new_node) == math.ceil(missing / room)


def test_pods_of_each_kind_wait_for_a_node_and_of_only_so_many_kinds() -> None:
    ledger = ledger_of()
    for kind in range(16):
        assert ledger.choose(needs(100, gpu=kind + 1), cap=1) is NoNode.FULL
        ledger.put_waiting(f"i-{kind}", needs(100, gpu=kind + 1), cap=1)
    assert ledger.choose(needs(100, gpu=1), cap=1) is NoNode.ENOUGH_WAIT
    assert ledger.choose(needs(100, gpu=1), cap=3) is NoNode.FULL
    assert ledger.choose(SMALL, cap=1) is NoNode.ENOUGH_WAIT
    ledger.drop("i-7")
    assert ledger.choose(SMALL, cap=1) is NoNode.FULL


@given(st.lists(st.sampled_from(KINDS), max_size=60), st.integers(1, 4))
def test_a_whole_plan_keeps_to_caps_and_room_and_leaves_nothing(kinds: list[Needs], cap: int) -> None:
    ledger = ledger_of(*(node(name, cpu=2000, gpu=1) for name in NODES))
    placed: Counter[str] = Counter()
    with ledger.trial() as place:
        for kind in kinds:
            found = place(kind, cap, 1)
            if isinstance(found, str):
                placed[found] += 1
        assert max(placed.values(), default=0) <= cap
        assert all(ledger.fullness(name) <= 1 for name in NODES)
    assert all(ledger.fullness(name) == 0 for name in NODES)
    assert "trial 0" not in ledger


@given(st.lists(st.integers(1, 1000), max_size=80))
def test_a_new_node_is_begun_only_for_what_fits_on_no_other(sizes: list[int]) -> None:
    """So at most one node is half empty, and no packing needs less than half as many: the bound of any-fit."""
    ledger = ledger_of(*(node(f"n{number:02}", cpu=1000) for number in range(80)))
    filled: Counter[str] = Counter()
    for number, size in enumerate(sizes):
        kind = needs(size, 1)
        chosen = ledger.choose(kind, cap=CAP)
        assert isinstance(chosen, str)
        ledger.put(f"i-{number}", kind, node=chosen, starting=False)
        filled[chosen] += size
    assert sum(used <= 500 for used in filled.values()) <= 1
    assert len(filled) <= max(1, 2 * math.ceil(sum(sizes) / 1000))


@given(st.integers(1, 60), st.integers(1, 9))
def test_equal_pods_take_as_few_nodes_as_there_can_be_or_are_spread_evenly(count: int, room: int) -> None:
    for strategy in ("pack", "spread"):
        ledger = ledger_of(
            *(node(f"n{number:02}", cpu=100 * room) for number in range(60)), strategy=strategy
        )
        placed: Counter[str] = Counter()
        for number in range(count):
            chosen = ledger.choose(SMALL, cap=CAP)
            assert isinstance(chosen, str)
            ledger.put(f"i-{number}", SMALL, node=chosen, starting=False)
            placed[chosen] += 1
        assert len(placed) == (math.ceil(count / room) if strategy == "pack" else count)


def test_a_node_at_its_cap_is_passed_over_until_a_start_is_done() -> None:
    ledger = ledger_of(node("n1"), node("n2"))
    for number in range(CAP):
        ledger.put(f"i-{number}", SMALL, node="n1", starting=True)
    assert ledger.choose(SMALL, cap=CAP) == "n2"
    assert ledger.choose(SMALL, cap=CAP + 1) == "n1", "a kind of start with a higher cap"
    ledger.put("i-0", SMALL, node="n1", starting=False)
    assert ledger.choose(SMALL, cap=CAP) == "n1"


def test_pods_count_on_nodes_that_are_shown_later() -> None:
    ledger = Ledger()
    ledger.put("i-1", needs(900), node="n1", starting=False)
    ledger.put_node(node("n1", cpu=1000))
    assert ledger.choose(needs(200), cap=CAP) is NoNode.FULL
    ledger.drop("i-1")
    assert ledger.choose(needs(200), cap=CAP) == "n1"


def test_a_node_that_an_autoscaler_wants_to_empty_comes_last() -> None:
    candidate = Taint("DeletionCandidateOfClusterAutoscaler", "1", "PreferNoSchedule")
    leaving = NodeView("n1", node("n1").allocatable, taints=(candidate,))
    ledger = ledger_of(leaving, node("n2"))
    ledger.put("i-1", SMALL, node="n1", starting=False)
    assert ledger.choose(SMALL, cap=CAP) == "n2"
    ledger.drop_node("n2")
    assert ledger.choose(SMALL, cap=CAP) == "n1"


def test_more_kinds_than_are_kept_are_still_right() -> None:
    ledger = ledger_of(node("n1", cpu=1000))
    for size in range(1, 100):
        assert ledger.choose(needs(size), cap=CAP) == "n1"
    ledger.put("i-1", needs(990), node="n1", starting=False)
    for size in range(1, 100):
        assert ledger.choose(needs(size), cap=CAP) == ("n1" if size <= 10 else NoNode.FULL)
