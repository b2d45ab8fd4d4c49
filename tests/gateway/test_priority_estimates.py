"""Estimates of waits where runs have priorities, with one create served each second."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter

import pytest
from sandlot_gateway.core.fair_queue import Scheduling
from sandlot_gateway.core.template_line import Waiter
from sandlot_gateway.core.wait_estimates import WaitEstimates
from sandlot_gateway.core.waiting import WaitList

from tests.gateway.test_wait_list import KEY, waiter


class Seconds:
    """A queue of one tenant whose next create is served each second."""

    def __init__(self, priorities: Mapping[str, int]) -> None:
        self.priorities = dict(priorities)
        self.line = WaitList[int](lambda path: Scheduling(priority=self.priorities.get(path[-1], 0)))
        self.estimates = WaitEstimates(self.line)
        self.now = 0.0
        self.waiting: list[Waiter[int]] = []

    def join(self, run: str, count: int = 1) -> None:
        for _ in range(count):
            self.waiting.append(one := waiter("t", len(self.waiting), run=run))
            self.line.add(one)
            self.estimates.joined(one, self.now)

    def leave(self, run: str) -> None:
        for one in [one for one in self.waiting if one.run == run]:
            self.line.remove(one)
            self._left(one)

    def serve(self) -> str:
        self.now += 1.0
        one = self.line.pop(KEY)
        assert one is not None
        self.estimates.served(one, self.now)
        self._left(one)
        return one.run

    def estimate(self, run: str) -> float | None:
        """Return the estimate of the last create of a run."""
        last = [one for one in self.waiting if one.run == run][-1]
        return self.estimates.of(last, self.now)

    def _left(self, one: Waiter[int]) -> None:
        self.estimates.left(one, self.now)
        self.waiting.remove(one)


def test_creates_of_a_lower_priority_that_join_make_no_wait_longer() -> None:
    world = Seconds({"one": 1, "other": 1})
    world.join("other", 20)
    world.join("one", 20)
    for _ in range(20):
        world.serve()
        world.join("low")
    world.leave("other")
    assert world.estimate("one") == pytest.approx(10.0), "alone it is served each second"


def test_those_of_a_higher_priority_come_first_and_then_the_run_has_its_share() -> None:
    world = Seconds({"high": 1})
    world.join("one", 15)
    world.join("other")
    for _ in range(20):
        if world.serve() == "other":
            world.join("other")
    world.join("high", 10)
    assert world.estimate("high") == pytest.approx(10.0)
    assert world.estimate("one") == pytest.approx(20.0, abs=1.0), "ten, then every second turn"


def test_what_a_run_had_under_another_priority_is_forgotten() -> None:
    world = Seconds({"low": -1})
    world.join("one", 60)
    world.join("low", 10)
    for _ in range(20):
        world.serve()
    assert world.estimate("low") == pytest.approx(50.0)
    world.priorities["low"] = 1
    assert world.line.reschedule()
    world.estimates.rescheduled(world.now)
    assert world.estimate("low") == pytest.approx(10.0)
    for _ in range(6):
        assert world.serve() == "low"
    assert world.estimate("low") == pytest.approx(4.0)
    assert world.estimate("one") == pytest.approx(44.0, rel=0.2)


def test_a_new_run_counts_those_of_a_higher_priority_that_will_join() -> None:
    world = Seconds({"high": 1})
    world.join("high", 30)
    world.join("low")
    for number in range(20):
        world.serve()
        world.join("high", number % 2)
    assert world.estimate("low") == pytest.approx(2 * 21.0), "one joins in two seconds, and 20 wait"
    for _ in range(20):
        world.serve()
        world.join("high", 2)
    assert world.estimate("low") is None, "more join than are served"


def test_tenants_that_are_gone_are_forgotten_and_may_come_back() -> None:
    seconds = Seconds({})
    for _ in range(2):
        for number in range(400):
            seconds.line.add(one := waiter(f"t{number}", number))
            seconds.estimates.joined(one, seconds.now)
            seconds.now += 1.0
            seconds.line.serve(one)
            seconds.estimates.served(one, seconds.now)
            seconds.estimates.left(one, seconds.now)
    seconds.join("again", 10)
    assert seconds.estimate("again") == pytest.approx(10.0, rel=0.1)


def test_what_other_tenants_did_costs_a_create_no_time() -> None:
    def seconds_of(tenants: int) -> float:
        took: list[float] = []
        line = WaitList[int](lambda path: Scheduling(priority=priority))
        estimates = WaitEstimates(line)
        for number in range(tenants * 100 + 300):
            priority = number % 100
            line.add(one := waiter(f"t{number // 100 % tenants}", number))
            begin = perf_counter()
            estimates.joined(one, 1.0)
            estimates.left(one, 1.0)
            took.append(perf_counter() - begin)
            line.remove(one)
        return sorted(took[-300:])[150]

    assert seconds_of(100) < 10 * seconds_of(1), "one with all tenants ever seen is a hundred times as long"
