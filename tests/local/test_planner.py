"""The pool planner: never more than the size or the cap, no wait without an end, refill behind claims."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sandlot_contract.template import Template
from sandlot_gateway.backends.local.planner import Plan, Planner, PlanSettings
from sandlot_gateway.core.instances import PoolSpec

HOST = Template("host")
OTHER = Template("/images/other.tar")


def pool(size: int, name: str = "a", template: Template = HOST) -> PoolSpec:
    return PoolSpec(name, template, size)


def begin(planner: Planner, plan: Plan, ids: itertools.count[int]) -> list[str]:
    begun = []
    for name in plan.starts:
        begun.append(f"i-{next(ids)}")
        planner.began(name, begun[-1])
    return begun


def test_fills_a_pool_with_a_bounded_number_of_starts_at_once() -> None:
    planner, ids = Planner(PlanSettings(max_starting=3)), itertools.count()
    planner.set(pool(5))
    first = begin(planner, planner.plan(now=0, warm={}), ids)
    assert len(first) == 3
    assert planner.plan(now=0, warm={}).starts == []
    planner.ready(first[0])
    assert planner.plan(now=0.1, warm={"a": 1}).starts == ["a"]


def test_refill_stands_back_for_claims_but_not_for_ever() -> None:
    planner = Planner(PlanSettings(beat=0.02, patience=0.25, max_starting=2))
    planner.set(pool(4))
    now, warm = 0.0, 4
    held = 0
    while not planner.plan(now=now, warm={"a": warm}).starts:
        planner.claimed("a", now=now)
        warm = max(0, warm - 1)
        held += 1
        now += 0.01
    assert now == pytest.approx(0.25, abs=0.03)
    assert held > 20


def test_after_the_last_claim_the_refill_comes_a_beat_later() -> None:
    planner = Planner(PlanSettings(beat=0.02, max_starting=2))
    planner.set(pool(1))
    planner.claimed("a", now=5.0)
    held = planner.plan(now=5.0, warm={"a": 0})
    assert held.starts == []
    assert held.again_at == pytest.approx(5.02)
    assert planner.plan(now=held.again_at, warm={"a": 0}).starts == ["a"]


def test_a_failing_pool_backs_off_with_the_reason_and_tries_one_at_a_time() -> None:
    planner = Planner(PlanSettings(max_starting=4, backoff=0.5, max_backoff=30))
    planner.set(pool(4))
    now, waits = 0.0, []
    for number in range(10):
        plan = planner.plan(now=now, warm={})
        assert len(plan.starts) == (4 if number == 0 else 1)
        planner.began("a", f"i-{number}")
        planner.failed("a", f"i-{number}", now=now, message="no such file")
        held = planner.plan(now=now, warm={})
        assert held.starts == []
        assert held.again_at is not None
        waits.append(held.again_at - now)
        now = held.again_at
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30]
    (status,) = planner.statuses()
    assert (status.failures, status.message) == (10, "no such file")
    planner.began("a", "i-good")
    planner.ready("i-good")
    (status,) = planner.statuses()
    assert (status.failures, status.message) == (0, None)
    assert len(planner.plan(now=now, warm={"a": 1}).starts) == 3


def test_a_caller_s_start_counts_against_the_cap_and_holds_refill_back() -> None:
    planner = Planner(PlanSettings(max_starting=2, beat=0.02))
    planner.set(pool(2))
    planner.caller_began("i-c", now=0.0)
    assert planner.plan(now=0.01, warm={}).starts == []
    assert planner.plan(now=0.03, warm={}).starts == ["a"]


def test_a_smaller_pool_gives_instances_up() -> None:
    planner = Planner()
    planner.set(pool(5))
    planner.set(pool(2))
    assert planner.plan(now=0, warm={"a": 5}).surplus == {"a": 3}


def test_recycled_instances_may_exceed_the_size_while_claims_come() -> None:
    planner = Planner(PlanSettings(quiet=10, reserve=2))
    planner.set(pool(2))
    assert planner.wants(["a"], now=0, warm={"a": 1}) == "a"
    assert planner.wants(["a"], now=0, warm={"a": 2}) is None
    planner.claimed("a", now=0)
    assert planner.wants(["a"], now=1, warm={"a": 3}) == "a"
    assert planner.wants(["a"], now=1, warm={"a": 4}) is None
    busy = planner.plan(now=1, warm={"a": 4})
    assert (busy.surplus, busy.again_at) == ({}, 10)
    assert planner.plan(now=10, warm={"a": 4}).surplus == {"a": 2}
    assert planner.wants(["b"], now=1, warm={}) is None
    assert planner.wants([], now=1, warm={}) is None


def test_a_reset_is_for_its_tenant_and_fills_the_pool() -> None:
    planner = Planner()
    planner.set(pool(2))
    planner.began("a", "i-1")
    planner.reset_began("a", "i-2", "alpha")
    [status] = planner.statuses()
    assert (status.starting, status.resetting) == (1, {"alpha": 1})
    assert planner.plan(now=0, warm={}).starts == []
    planner.ready("i-2")
    [status] = planner.statuses()
    assert (status.starting, status.resetting) == (1, {})
    planner.reset_began("a", "i-2", "alpha")
    planner.gone("i-2")
    assert planner.statuses()[0].resetting == {}


def test_the_emptiest_pool_is_filled_first() -> None:
    planner = Planner(PlanSettings(max_starting=2))
    planner.set(pool(100, "big"))
    planner.set(pool(1, "small", OTHER))
    assert sorted(planner.plan(now=0, warm={"big": 1}).starts) == ["big", "small"]


def test_a_removed_pool_forgets_its_starts() -> None:
    planner = Planner(PlanSettings(max_starting=1))
    planner.set(pool(1))
    planner.began("a", "i-1")
    assert planner.remove("a")
    assert not planner.remove("a")
    planner.set(pool(1, "b"))
    assert planner.plan(now=0, warm={}).starts == ["b"]


class PoolMachine(RuleBasedStateMachine):
    """Any history of claims, readiness, failures, resizes and callers, with a clock that goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = PlanSettings(max_starting=3)
        self.planner = Planner(self.settings)
        self.now = 0.0
        self.ids = itertools.count()
        self.sizes: dict[str, int] = {}
        self.starting: dict[str, str] = {}
        self.callers: set[str] = set()
        self.warm: dict[str, int] = {}

    @rule(name=st.sampled_from("abc"), size=st.integers(0, 6))
    def resize(self, name: str, size: int) -> None:
        self.planner.set(pool(size, name))
        self.sizes[name] = size

    @rule(name=st.sampled_from("abc"))
    def remove(self, name: str) -> None:
        assert self.planner.remove(name) == (name in self.sizes)
        self.sizes.pop(name, None)
        self.warm.pop(name, None)
        self.starting = {key: value for key, value in self.starting.items() if value != name}

    @rule(seconds=st.sampled_from([0.0, 0.005, 0.03, 1.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def plan(self) -> None:
        plan = self.planner.plan(now=self.now, warm=self.warm)
        busy = len(self.starting) + len(self.callers)
        assert busy + len(plan.starts) <= max(busy, self.settings.max_starting)
        for name in plan.starts:
            instance_id = f"i-{next(self.ids)}"
            self.planner.began(name, instance_id)
            self.starting[instance_id] = name
            pending = sum(1 for value in self.starting.values() if value == name)
            assert pending + self.warm.get(name, 0) <= self.sizes[name]
        for name, count in plan.surplus.items():
            self.warm[name] -= count
            assert self.warm[name] >= self.sizes[name]
        assert plan.again_at is None or plan.again_at > self.now

    @precondition(lambda self: self.starting)
    @rule(data=st.data(), well=st.booleans())
    def end_start(self, data: st.DataObject, well: bool) -> None:
        instance_id = data.draw(st.sampled_from(sorted(self.starting)))
        name = self.starting.pop(instance_id)
        if well:
            self.planner.ready(instance_id)
            self.warm[name] = self.warm.get(name, 0) + 1
        else:
            self.planner.failed(name, instance_id, now=self.now, message="bad luck")

    @precondition(lambda self: any(self.warm.values()))
    @rule(data=st.data())
    def claim(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(key for key, count in self.warm.items() if count)))
        self.warm[name] -= 1
        self.planner.claimed(name, now=self.now)

    @rule()
    def caller(self) -> None:
        instance_id = f"c-{next(self.ids)}"
        self.planner.caller_began(instance_id, now=self.now)
        self.callers.add(instance_id)

    @precondition(lambda self: self.callers)
    @rule()
    def caller_done(self) -> None:
        self.planner.ready(self.callers.pop())

    @invariant()
    def counts_agree(self) -> None:
        assert sum(status.starting for status in self.planner.statuses()) == len(self.starting)

    def teardown(self) -> None:
        """Left alone, with every start going well, all pools become full without anything else happening."""
        for instance_id in self.callers:
            self.planner.ready(instance_id)
        self.callers.clear()
        for _ in range(200):
            plan = self.planner.plan(now=self.now, warm=self.warm)
            for name in plan.starts:
                instance_id = f"i-{next(self.ids)}"
                self.planner.began(name, instance_id)
                self.starting[instance_id] = name
            for name, count in plan.surplus.items():
                self.warm[name] -= count
            if not self.starting and plan.again_at is None:
                break
            for instance_id, name in self.starting.items():
                self.planner.ready(instance_id)
                self.warm[name] = self.warm.get(name, 0) + 1
            self.starting.clear()
            self.now = max(self.now, plan.again_at or self.now)
        assert {name: self.warm.get(name, 0) for name in self.sizes} == self.sizes


PoolMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestPoolMachine = PoolMachine.TestCase


def test_a_pool_that_lacks_what_others_use_asks_again_soon_for_one_and_has_not_failed() -> None:
    planner, ids = Planner(PlanSettings(max_starting=4)), itertools.count()
    planner.set(pool(3))
    now = 0.0
    for _ in range(20):
        begun = begin(planner, planner.plan(now=now, warm={}), ids)
        assert len(begun) == (3 if now == 0.0 else 1)
        for instance_id in begun:
            planner.refused("a", instance_id, now=now, message="no GPU is free", retry_after=1.0)
        assert planner.plan(now=now, warm={}).again_at == now + 1.0
        now += 1.0
    [status] = planner.statuses()
    assert (status.failures, status.message) == (0, "no GPU is free")
    [one] = begin(planner, planner.plan(now=now, warm={}), ids)
    planner.ready(one)
    assert planner.statuses()[0].message is None
    assert len(planner.plan(now=now, warm={"a": 1}).starts) == 2
