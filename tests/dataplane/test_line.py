"""The line for connections of one upstream, without I/O: order, bounds, and when who waits is told."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sandlot_gateway.data.line import Line, LineSettings, Waiter

SETTINGS = LineSettings(
    max_dials=3, refused_for=5.0, refused_for_others=1.0, silent_for=60.0, silent_for_others=10.0
)


class Lines(RuleBasedStateMachine):
    """Any order of calls, dials, connections given back, failures and passing time."""

    def __init__(self) -> None:
        super().__init__()
        self.line: Line[int] = Line(SETTINGS)
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


Lines.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestLine = Lines.TestCase
