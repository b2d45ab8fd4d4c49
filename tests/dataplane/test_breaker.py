"""Admission: its bounds hold in every order of events; and waiting for it survives being given up at any moment."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sandlot_gateway.data.admission import Admission, Full
from sandlot_gateway.data.breaker import Abandoned, Breaker, Limits, Overloaded

from tests.waiting import loop_turns

LANES = st.sampled_from(["a", "b", "c"])


class AdmissionModel(RuleBasedStateMachine):
    """Against lists: who runs, and who waits in which order."""

    def __init__(self) -> None:
        super().__init__()
        self.admission = Admission(max_running=2, max_waiting=3, max_total=9)
        self.running: dict[str, list[int]] = {"a": [], "b": [], "c": []}
        self.waiting: dict[str, list[int]] = {"a": [], "b": [], "c": []}
        self.tickets = 0

    @property
    def total(self) -> int:
        return sum(map(len, self.running.values())) + sum(map(len, self.waiting.values()))

    @rule(lane=LANES)
    def enter(self, lane: str) -> None:
        self.tickets += 1
        total_before = self.total
        outcome = self.admission.enter(lane, self.tickets)
        if total_before == 9:
            assert isinstance(outcome, Full)
            assert outcome.scope == "gateway"
        elif len(self.running[lane]) < 2:
            assert outcome is True
            self.running[lane].append(self.tickets)
        elif len(self.waiting[lane]) < 3:
            assert outcome is False
            self.waiting[lane].append(self.tickets)
        else:
            assert isinstance(outcome, Full)
            assert (outcome.scope, outcome.running, outcome.queued) == ("sandbox", 2, 3)

    @rule(lane=LANES)
    def look_without_waiting(self, lane: str) -> None:
        if self.total < 9 and len(self.running[lane]) == 2 and len(self.waiting[lane]) < 3:
            assert self.admission.enter(lane, None) is False

    @precondition(lambda self: any(self.running.values()))
    @rule(data=st.data())
    def leave(self, data) -> None:
        lane = data.draw(st.sampled_from([name for name, tickets in self.running.items() if tickets]))
        self.running[lane].pop(data.draw(st.integers(0, len(self.running[lane]) - 1)))
        admitted = self.admission.leave(lane)
        if self.waiting[lane]:
            assert admitted == self.waiting[lane].pop(0)
            self.running[lane].append(admitted)
        else:
            assert admitted is None

    @precondition(lambda self: any(self.waiting.values()))
    @rule(data=st.data())
    def give_up(self, data) -> None:
        lane = data.draw(st.sampled_from([name for name, tickets in self.waiting.items() if tickets]))
        ticket = self.waiting[lane].pop(data.draw(st.integers(0, len(self.waiting[lane]) - 1)))
        assert self.admission.cancel(lane, ticket) is True
        assert self.admission.cancel(lane, ticket) is False

    @precondition(lambda self: any(self.running.values()))
    @rule(data=st.data())
    def one_that_runs_cannot_give_up_waiting(self, data) -> None:
        lane = data.draw(st.sampled_from([name for name, tickets in self.running.items() if tickets]))
        assert self.admission.cancel(lane, data.draw(st.sampled_from(self.running[lane]))) is False

    @invariant()
    def the_counts_are_true(self) -> None:
        assert self.admission.running == sum(map(len, self.running.values()))
        assert self.admission.waiting == sum(map(len, self.waiting.values()))
        for lane in self.running:
            assert self.admission.position(lane) == (len(self.running[lane]), len(self.waiting[lane]))
        assert self.admission.lanes == sum(1 for tickets in self.running.values() if tickets)


AdmissionModel.TestCase.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
TestAdmission = AdmissionModel.TestCase


def small(**limits) -> Breaker:
    return Breaker(Limits(**{"per_sandbox": 1, "queue_per_sandbox": 2, "total": 10, **limits}))


async def test_waiting_is_first_come_first_served():
    breaker = small()
    assert await breaker.enter("a") == 0.0
    order: list[int] = []

    async def wait(number: int) -> None:
        await breaker.enter("a")
        order.append(number)
        breaker.leave("a")

    async with asyncio.TaskGroup() as group:
        for number in (1, 2):
            group.create_task(wait(number))
            await loop_turns()
        assert breaker.waiting == 2
        with pytest.raises(Overloaded) as full:
            await breaker.enter("a")
        assert full.value.full.document() == {"scope": "sandbox", "running": 1, "queued": 2, "limit": 2}
        breaker.leave("a")
    assert order == [1, 2]
    assert (breaker.running, breaker.waiting) == (0, 0)


@pytest.mark.parametrize(
    "moment", ["cancelled", "cancelled as it was let in", "abandoned", "let in as it was abandoned"]
)
async def test_a_place_is_not_lost_with_the_one_who_waited_for_it(moment):
    breaker = small()
    await breaker.enter("a")
    gone = asyncio.Event()

    async def wait_for_disconnect() -> None:
        await gone.wait()

    waiting = asyncio.create_task(breaker.enter("a", gone=wait_for_disconnect))
    await loop_turns()
    behind = asyncio.create_task(breaker.enter("a"))
    await loop_turns()
    assert (breaker.running, breaker.waiting) == (1, 2)
    if moment == "cancelled":
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        breaker.leave("a")
    elif moment == "cancelled as it was let in":
        breaker.leave("a")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    elif moment == "abandoned":
        gone.set()
        with pytest.raises(Abandoned):
            await waiting
        breaker.leave("a")
    else:
        gone.set()
        breaker.leave("a")
        await waiting
        breaker.leave("a")
    async with asyncio.timeout(20):
        await behind
    assert (breaker.running, breaker.waiting) == (1, 0)
    breaker.leave("a")
    assert (breaker.running, breaker.waiting) == (0, 0)


async def test_a_tenant_that_fills_the_total_does_not_keep_others_out():
    breaker = small(total=20)
    for number in range(20):
        assert breaker.try_enter(f"greedy-{number}", tenant="greedy")
    assert breaker.try_enter("modest-1", tenant="modest")
    waiting = asyncio.create_task(breaker.enter("modest-1", tenant="modest"))
    await loop_turns()
    assert (breaker.running, breaker.waiting) == (21, 1)
    # A tenth of 20 is for sure, in whatever sandboxes and whether it runs or waits; not more.
    for lane, tenant in (("greedy-20", "greedy"), ("modest-1", "modest"), ("modest-2", "modest")):
        with pytest.raises(Overloaded) as full:
            breaker.try_enter(lane, tenant=tenant)
        assert full.value.full.scope == "gateway"
    breaker.leave("modest-1")
    await waiting
    assert breaker.try_enter("modest-2", tenant="modest")
    for lane in ("modest-1", "modest-2", "greedy-0", "greedy-1", "greedy-2"):
        breaker.leave(lane)
    assert breaker.running == 17
    assert breaker.try_enter("greedy-20", tenant="greedy")


async def test_the_total_is_bounded_over_all_sandboxes():
    breaker = small(total=3)
    for name in "abc":
        assert breaker.try_enter(name)
    with pytest.raises(Overloaded) as full:
        breaker.try_enter("d")
    assert full.value.full.scope == "gateway"
    breaker.leave("a")
    assert breaker.try_enter("d")
