"""Estimates how long creates will wait in the queue, from how fast others were served. Plain data, no clock, no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from .waiting import Waiter, WaitList

T = TypeVar("T")

_LEAST = 5  # creates that must have been served before a rate is known
_NEWEST = 64  # served creates that a rate is of
_IDLE = 256  # lanes without a waiting create that are remembered
_ANY = ""  # the kind of all creates together; no template's key is empty

_Key = tuple[str, ...]  # kind, tenant and run; the kind alone for all of its runs


class _Passed(NamedTuple):
    """Seconds, creates of the kind that were served and that joined, and those of them that joined the lane itself."""

    seconds: float = 0.0
    served: int = 0
    joined: int = 0
    own: int = 0

    def plus(self, more: _Passed) -> _Passed:
        return _Passed(
            self.seconds + more.seconds,
            self.served + more.served,
            self.joined + more.joined,
            self.own + more.own,
        )

    def since(self, then: _Passed) -> _Passed:
        return _Passed(
            self.seconds - then.seconds,
            self.served - then.served,
            self.joined - then.joined,
            self.own - then.own,
        )


class _Lane:
    """The creates of one kind and run, or of all runs, and what passed while any of them waited."""

    def __init__(self) -> None:
        self.waiting = self.joined = self.served = 0
        self._before = _Passed()  # until `_since`
        self._since: _Passed | None = None
        # What had passed at each of the newest served creates; the first one only begins the time.
        self._newest = deque([_Passed()], maxlen=_NEWEST + 1)

    def join(self, now: _Passed) -> None:
        self.waiting += 1
        if self._since is None:
            self._since = now

    def serve(self, now: _Passed) -> None:
        self._newest.append(self._at(now))

    def leave(self, now: _Passed) -> None:
        self.waiting -= 1
        if not self.waiting:
            self._before, self._since = self._at(now), None

    def newest(self, now: _Passed) -> tuple[int, _Passed] | None:
        """Return how many were served last, and what passed meanwhile; None: too few were."""
        count = len(self._newest) - 1
        return (count, self._at(now).since(self._newest[0])) if count >= _LEAST else None

    def _at(self, now: _Passed) -> _Passed:
        return self._before.plus(now.since(self._since)) if self._since is not None else self._before


class WaitEstimates(Generic[T]):
    """A create waits for those of its kind that are before it, at the rate at which that kind was served lately.

    Creates of other runs that join later may come first. So it waits longer, for as many as would join meanwhile at the
    rate at which they did lately, but with no less than the share of turns that its run had lately.
    """

    def __init__(self, line: WaitList[T]) -> None:
        self._line = line
        self._lanes: dict[_Key, _Lane] = {}
        self._idle: dict[_Key, None] = {}  # those in which none waits, the longest idle first

    def joined(self, waiter: Waiter[T], now: float) -> None:
        """Note a create that has joined the queue."""
        for key in _keys(waiter):
            lane = self._lanes.setdefault(key, _Lane())
            self._idle.pop(key, None)
            lane.joined += 1
            lane.join(self._passed(key, now))

    def served(self, waiter: Waiter[T], now: float) -> None:
        """Note a create that has got its instance; it leaves then."""
        for key in _keys(waiter):
            self._lanes[key].served += 1
            self._lanes[key].serve(self._passed(key, now))

    def left(self, waiter: Waiter[T], now: float) -> None:
        """Note a create that has left the queue."""
        for key in _keys(waiter):
            lane = self._lanes[key]
            lane.leave(self._passed(key, now))
            if not lane.waiting:
                self._idle[key] = None
        while len(self._idle) > _IDLE:
            del self._lanes[oldest := next(iter(self._idle))], self._idle[oldest]

    def of(self, waiter: Waiter[T], now: float) -> float | None:
        """Return in how many seconds a create that waits may be served; None: too few were to tell."""
        own, others = self._line.ahead_of_kind(waiter)
        seconds = self._of_kind(waiter.key, waiter, own, others, now)
        if seconds is None:  # such as where each image is a kind of its own
            seconds = self._of_kind(_ANY, waiter, *self._line.ahead(waiter), now)
        return seconds

    def _of_kind(self, kind: str, waiter: Waiter[T], own: int, others: float, now: float) -> float | None:
        ahead = own + others
        for key in ((kind, *waiter.path), (kind,)):
            newest = self._lanes[key].newest(self._passed(key, now))
            if newest is None:
                continue  # of a run that is new, nothing is known but its place
            count, passed = newest
            at_least = (ahead + 1) * passed.seconds / passed.served
            sinking = passed.served - (passed.joined - passed.own)  # others that join take places ahead
            by_share = (own + 1) * passed.seconds / count
            by_place = (ahead + 1) * passed.seconds / sinking if sinking > 0 else by_share
            return at_least if len(key) == 1 else max(at_least, min(by_share, by_place))
        return None

    def _passed(self, key: _Key, now: float) -> _Passed:
        of_kind = self._lanes[key[:1]]
        return _Passed(now, of_kind.served, of_kind.joined, self._lanes[key].joined)


def _keys(waiter: Waiter[T]) -> Iterator[_Key]:
    """Yield the lanes of a create; a kind's before those of its runs, which count by it."""
    for kind in (waiter.key, _ANY):
        yield (kind,)
        yield (kind, *waiter.path)
