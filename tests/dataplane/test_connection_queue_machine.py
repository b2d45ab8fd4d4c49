"""The line for connections of one upstream, without I/O: order, bounds, and when who waits is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sandlot_gateway.data.connection_queue import ConnectionQueue, ConnectionQueueSettings, Waiter

SETTINGS = ConnectionQueueSettings(
    max_dials=3, refused_for=5.0, refused_for_others=1.0, silent_for=60.0, silent_for_others=10.0
)


class ConnectionQueues(RuleBasedStateMachine):
    """Any order of calls, dials, connections given back, failures and passing time."""

    def __init__(self) -> None:
        super().__init__()
        self.line: ConnectionQueue[int] = ConnectionQueue(SETTINGS)
        self.now = 0.0
        self.heard: float | None = None
        self.next = 0
        self.waiting: dict[int, Waiter[int]] = {}
        self.refused_since: float | None = None

    @rule(known_alive=st.booleans())
    def join(self, known_alive: bool) -> None:
        before = self.line.dials
        waiter = self.line.join(self.next, now=self.now, known_alive=known_alive)
        self.waiting[self.next] = waiter
        self.next += 1
        begun = self.line.begin_dials()
        assert begun <= 1
        assert self.line.dials == before + begun

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.waiting)))
        waiter = self.waiting.pop(ticket)
        self.line.leave(waiter)
        self.line.leave(waiter)

    @rule()
    def given_back(self) -> None:
        self._served()

    @precondition(lambda self: self.line.dials)
    @rule()
    def connected(self) -> None:
        self.line.connected()
        self.refused_since = None
        self.heard = self.now
        self._served()
        self._end_needless_dial()

    @precondition(lambda self: self.line.dials)
    @rule(refused=st.booleans())
    def failed(self, refused: bool) -> None:
        if not refused:
            self.refused_since = None
        elif self.refused_since is None:
            self.refused_since = self.now
        told = self.line.failed(now=self.now, refused=refused, reason="why", heard=self.heard)
        expected = [ticket for ticket, waiter in self.waiting.items() if self._is_over(waiter)]
        assert told == expected
        for ticket in told:
            del self.waiting[ticket]
        self._end_needless_dial()

    @rule(seconds=st.floats(0.1, 100.0))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def sign_of_life(self) -> None:
        self.heard = self.now

    @rule()
    def dead(self) -> None:
        assert self.line.dismiss_all() == list(self.waiting)
        self.waiting.clear()

    def _served(self) -> None:
        ticket = self.line.serve()
        first = next(iter(self.waiting), None)
        assert ticket == first
        if first is not None:
            del self.waiting[first]

    def _end_needless_dial(self) -> None:
        if not self.line.is_dial_needed():
            self.line.dials -= 1

    def _is_over(self, waiter: Waiter[int]) -> bool:
        if self.refused_since is not None:
            return self.now - self.refused_since >= (5.0 if waiter.known_alive else 1.0)
        quiet = self.now - max(waiter.since, -1.0 if self.heard is None else self.heard)
        return quiet >= (60.0 if waiter.known_alive else 10.0)

    @invariant()
    def nobody_waits_without_a_dial_and_dials_are_few(self) -> None:
        assert len(self.line) == len(self.waiting)
        assert self.line.dials <= SETTINGS.max_dials
        assert self.line.dials or not self.waiting


ConnectionQueues.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestLine = ConnectionQueues.TestCase


def waiting(
    count: int, *, now: float = 0.0, known_alive: bool = True, **options: Any
) -> ConnectionQueue[int]:
    """A line in which 0, 1, … wait, with as many dials as they get."""
    line: ConnectionQueue[int] = ConnectionQueue(replace(SETTINGS, **options))
    for ticket in range(count):
        line.join(ticket, now=now, known_alive=known_alive)
        line.begin_dials()
    return line


def test_a_new_line_has_nobody_no_dial_and_nothing_to_tell() -> None:
    line = waiting(0)
    assert (len(line), line.dials, line.timeouts, line.reason) == (0, 0, 0, "")
    assert line.serve() is None
    assert line.begin_dials() == 0
    assert line.dismiss_all() == []


def test_dials_grow_with_who_waits_up_to_their_most() -> None:
    line = waiting(0)
    begun = []
    for ticket in range(5):
        line.join(ticket, now=0.0, known_alive=True)
        begun.append(line.begin_dials())
    assert begun == [1, 1, 1, 0, 0]
    assert line.dials == 3
    assert line.serve() == 0
    assert line.begin_dials() == 0  # more than enough are under way, and none is taken back here
    assert line.dials == 3
    line.dials = 0
    assert line.begin_dials() == 3
    assert waiting(2).dials == 2


def test_a_dial_goes_on_as_long_as_there_is_somebody_for_it() -> None:
    line = waiting(2)
    assert line.is_dial_needed()
    line.serve()
    assert not line.is_dial_needed()  # two dials, one who waits: one of them ends
    line.dials -= 1
    assert line.is_dial_needed()


def test_who_leaves_is_passed_over_and_may_leave_twice() -> None:
    line: ConnectionQueue[int] = ConnectionQueue(SETTINGS)
    first, second = (line.join(ticket, now=0.0, known_alive=True) for ticket in range(2))
    line.leave(first)
    line.leave(first)
    assert (len(line), line.serve(), len(line)) == (1, 1, 0)
    line.leave(second)


@pytest.mark.parametrize(("known_alive", "limit"), [(True, 5.0), (False, 1.0)])
def test_a_refusal_counts_from_the_first_in_a_row(known_alive: bool, limit: float) -> None:
    line = waiting(2, known_alive=known_alive)
    assert line.failed(now=100.0, refused=True, reason="refused", heard=None) == []
    assert (line.timeouts, line.reason) == (0, "refused")
    assert line.failed(now=100.0 + limit - 0.25, refused=True, reason="again", heard=None) == []
    assert line.failed(now=100.0 + limit, refused=True, reason="dead", heard=100.0) == [0, 1]
    assert (len(line), line.reason) == (0, "dead")


@pytest.mark.parametrize("between", ["connected", "silence"])
def test_a_row_of_refusals_ends_with_anything_else(between: str) -> None:
    line = waiting(1)
    line.failed(now=0.0, refused=True, reason="refused", heard=None)
    if between == "connected":
        line.connected()
    else:
        line.failed(now=1.0, refused=False, reason="silent", heard=None)
    assert line.failed(now=5.0, refused=True, reason="refused", heard=None) == []
    assert line.failed(now=9.75, refused=True, reason="refused", heard=None) == []
    assert line.failed(now=10.0, refused=True, reason="refused", heard=None) == [0]


@pytest.mark.parametrize(("known_alive", "limit"), [(True, 60.0), (False, 10.0)])
@pytest.mark.parametrize("heard", [None, 0.0, 40.0, 70.0])
def test_silence_counts_from_the_last_sign_of_life_or_from_the_call(
    known_alive: bool, limit: float, heard: float | None
) -> None:
    line = waiting(1, now=40.0, known_alive=known_alive)
    since = 70.0 if heard == 70.0 else 40.0
    assert line.failed(now=since + limit - 0.25, refused=False, reason="no", heard=heard) == []
    assert line.failed(now=since + limit, refused=False, reason="no", heard=heard) == [0]


def test_of_many_only_those_are_told_whose_time_is_over() -> None:
    line = waiting(1, known_alive=True)
    line.join(1, now=0.0, known_alive=False)
    line.join(2, now=5.0, known_alive=False)
    line.join(3, now=5.0, known_alive=True)
    assert line.failed(now=10.0, refused=False, reason="no", heard=None) == [1]
    assert line.failed(now=15.0, refused=False, reason="no", heard=None) == [2]
    assert line.dismiss_all() == [0, 3]
    assert len(line) == 0


def test_timeouts_in_a_row_are_counted() -> None:
    line = waiting(1)
    for count in (1, 2, 3):
        line.failed(now=0.0, refused=False, reason="no", heard=None)
        assert line.timeouts == count
    line.failed(now=0.0, refused=True, reason="no", heard=None)
    assert line.timeouts == 0
    line.failed(now=0.0, refused=False, reason="no", heard=None)
    line.connected()
    assert line.timeouts == 0
