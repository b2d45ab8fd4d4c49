"""Estimates how long creates will wait in the queue, from how fast others were served. Plain data, no clock, no I/O."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from .template_line import Waiter
from .waiting import Ahead, WaitList

T = TypeVar("T")

_LEAST = 5  # creates that must have been served before a rate is known
_NEWEST = 64  # served creates that a rate is of
_IDLE = 256  # lanes without a waiting create that are remembered
_ANY = ""  # the kind of all creates together; no template's key is empty

_Key = tuple[str, ...]  # kind, tenant and run; the kind alone for all of its runs


class _Passed(NamedTuple):
    """Seconds, and the creates of the kind that were served and that joined meanwhile.

    `joined` has no creates of lower priority, which come before none of the lane's. `own` are those of them that joined
    the lane itself, `higher` those of its tenant with a higher priority.
    """

    seconds: float = 0.0
    served: int = 0
    joined: int = 0
    own: int = 0
    higher: int = 0

    def plus(self, more: _Passed) -> _Passed:
        return _Passed(
            self.seconds + more.seconds,
            self.served + more.served,
            self.joined + more.joined,
            self.own + more.own,
            self.higher + more.higher,
        )

    def since(self, then: _Passed) -> _Passed:
        return _Passed(
            self.seconds - then.seconds,
            self.served - then.served,
            self.joined - then.joined,
            self.own - then.own,
            self.higher - then.higher,
        )


class _Lane:
    """The creates of one kind and run, or of all runs, and what passed while any of them waited."""

    def __init__(self, priority: int = 0) -> None:
        self.waiting = self.joined = self.served = 0
        # Of all runs: by tenant and priority, and how many runs of a tenant have lanes. Other tenants are forgotten.
        self.joined_by: dict[str, Counter[int]] = {}
        self.lanes: Counter[str] = Counter()
        self.priority = priority  # of the run
        self._since: _Passed | None = None
        self.begin()

    def begin(self, now: _Passed | None = None) -> None:
        """Forget what passed until now."""
        self._before = _Passed()  # until `_since`
        self._since = now if self.waiting else None
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
        return (count, self.passed(now)) if count >= _LEAST else None

    def passed(self, now: _Passed) -> _Passed:
        """Return what passed since the oldest of the newest served creates."""
        return self._at(now).since(self._newest[0])

    def _at(self, now: _Passed) -> _Passed:
        return self._before.plus(now.since(self._since)) if self._since is not None else self._before


class WaitEstimates(Generic[T]):
    """A create waits for those of its kind that are before it, at the rate at which that kind was served lately.

    Creates of other runs that join later may come first. So it waits longer, for as many as would join meanwhile at the
    rate at which they did lately, but with no less than the share of turns that its run had lately, once those of higher
    priority that wait now are served.
    """

    def __init__(self, line: WaitList[T]) -> None:
        self._line = line
        self._lanes: dict[_Key, _Lane] = {}
        self._idle: dict[_Key, None] = {}  # those in which none waits, the longest idle first

    def joined(self, waiter: Waiter[T], now: float) -> None:
        """Note a create that has joined the queue."""
        priority = self._line.priority(*waiter.path)
        for key in _keys(waiter):
            if (lane := self._lanes.get(key)) is None:
                lane = self._lanes[key] = _Lane(priority)
                if len(key) > 1:
                    self._lanes[key[:1]].lanes[waiter.tenant] += 1
            elif len(key) > 1:
                self._prioritize(key, priority, now)
            self._idle.pop(key, None)
            lane.joined += 1
            if len(key) == 1:
                lane.joined_by.setdefault(waiter.tenant, Counter())[priority] += 1
            lane.join(self._passed(key, now))

    def served(self, waiter: Waiter[T], now: float) -> None:
        """Note a create that has got its instance; it leaves then."""
        for key in _keys(waiter):
            self._lanes[key].served += 1
            self._lanes[key].serve(self._passed(key, now))

    def left(self, waiter: Waiter[T], now: float) -> None:
        """Note a create that has left the queue."""
        for key in reversed([*_keys(waiter)]):  # so that no lane of a run is idle for less time than its kind
            lane = self._lanes[key]
            lane.leave(self._passed(key, now))
            if not lane.waiting:
                self._idle[key] = None
        while len(self._idle) > _IDLE:
            self._forget(next(iter(self._idle)))

    def _forget(self, key: _Key) -> None:
        del self._lanes[key], self._idle[key]
        of_kind = self._lanes.get(key[:1])
        if of_kind is None or len(key) == 1:
            return
        of_kind.lanes[key[1]] -= 1
        if not of_kind.lanes[key[1]]:
            del of_kind.lanes[key[1]], of_kind.joined_by[key[1]]

    def rescheduled(self, now: float) -> None:
        """Note that priorities have changed: what passed under another one says nothing of what comes."""
        for key, lane in self._lanes.items():
            if len(key) > 1 and lane.waiting:
                self._prioritize(key, self._line.priority(*key[1:]), now)

    def _prioritize(self, key: _Key, priority: int, now: float) -> None:
        lane = self._lanes[key]
        if lane.priority != priority:
            lane.priority = priority
            lane.begin(self._passed(key, now))

    def of(self, waiter: Waiter[T], now: float) -> float | None:
        """Return in how many seconds a create that waits may be served; None: too few were to tell.

        None also if none of its run was served lately, and as many of higher priority joined as were served.
        """
        for kind, ahead in (
            (waiter.key, self._line.ahead_of_kind(waiter)),
            (_ANY, self._line.ahead(waiter)),  # such as where each image is a kind of its own
        ):
            if self._lanes[kind,].newest(self._passed((kind,), now)) is not None:
                return self._of_kind((kind, *waiter.path), ahead, now)
        return None

    def _of_kind(self, key: _Key, ahead: Ahead, now: float) -> float | None:
        places = ahead.own + ahead.others + 1
        lane, passed = self._lanes[key], self._passed(key, now)
        if (newest := lane.newest(passed)) is not None:
            count, passed = newest
            one = passed.seconds / passed.served
            sinking = passed.served - (passed.joined - passed.own)  # others that join take places ahead
            by_share = ahead.higher * one + (ahead.own + 1) * passed.seconds / count
            by_place = places * passed.seconds / sinking if sinking > 0 else by_share
            return max(places * one, min(by_share, by_place))
        # Of a run that is new, nothing is known but its place, and who came before it since.
        of_kind = self._lanes[key[:1]].newest(self._passed(key[:1], now))
        passed = lane.passed(passed)
        if of_kind is None or passed.higher >= max(passed.served, 1):
            return None
        at_least = places * of_kind[1].seconds / of_kind[1].served
        return at_least * passed.served / (passed.served - passed.higher) if passed.higher else at_least

    def _passed(self, key: _Key, now: float) -> _Passed:
        lane, of_kind = self._lanes[key], self._lanes[key[:1]]
        lower = higher = 0
        if lane is not of_kind:
            for priority, joined in of_kind.joined_by[key[1]].items():
                lower += joined if priority < lane.priority else 0
                higher += joined if priority > lane.priority else 0
        return _Passed(now, of_kind.served, of_kind.joined - lower, lane.joined, higher)


def _keys(waiter: Waiter[T]) -> Iterator[_Key]:
    """Yield the lanes of a create; a kind's before those of its runs, which count by it."""
    for kind in (waiter.key, _ANY):
        yield (kind,)
        yield (kind, *waiter.path)
