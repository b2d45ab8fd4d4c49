"""The creates that wait, by their asks: each is in the line, in its estimates and in the evictions, or in none of them."""

from __future__ import annotations

from .evictions import Evictions
from .starts import Ask
from .supply_events import AskId
from .template_line import Waiter
from .wait_estimates import WaitEstimates
from .waiting import WaitList


class WaitingAsks:
    """Who joins, is served or leaves does so in all of them. `now` in seconds, as in `SupplyCore.step`."""

    def __init__(self, line: WaitList[Ask], evictions: Evictions) -> None:
        self._line = line
        self._estimates = WaitEstimates(line)
        self._evictions = evictions
        self._waiters: dict[AskId, Waiter[Ask]] = {}

    def get(self, ask: AskId) -> Waiter[Ask] | None:
        return self._waiters.get(ask)

    def join(self, waiter: Waiter[Ask], *, front: bool, now: float) -> None:
        self._line.add(waiter, front=front)
        self._waiters[waiter.value.id] = waiter
        self._estimates.joined(waiter, now)
        self._evictions.asked(waiter)

    def serve(self, waiter: Waiter[Ask], *, now: float) -> None:
        """Remove one that got its instance, in turn or not."""
        self._line.serve(waiter)
        self._estimates.served(waiter, now)
        self.leave(waiter, now=now)

    def leave(self, waiter: Waiter[Ask], *, now: float) -> None:
        self._line.remove(waiter)
        self._estimates.left(waiter, now)
        self._evictions.left(waiter.key)
        del self._waiters[waiter.value.id]

    def reschedule(self, *, now: float) -> None:
        """Apply changed priorities of runs."""
        if self._line.reschedule():
            self._estimates.rescheduled(now)

    def position(self, ask: AskId) -> int:
        """Return the ask's place in the queue, 1 for the next or for one that no longer waits."""
        waiter = self._waiters.get(ask)
        return self._line.position(waiter) if waiter is not None else 1

    def estimated_wait(self, ask: AskId, *, now: float) -> float | None:
        """Return in how many seconds a waiting ask may have its instance; None if that is unknown."""
        waiter = self._waiters.get(ask)
        return self._estimates.of(waiter, now) if waiter is not None else None
