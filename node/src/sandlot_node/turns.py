"""Decides which pull is next: tenants take turns, however many pulls each of them has asked for.

Plain data, without a clock or I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

Work = TypeVar("Work", bound=Hashable)


class Turns(Generic[Work]):
    """At most `limit` pieces of work at once; the tenant with the fewest that run is next, in turn among equals."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._waiting: dict[str | None, dict[Work, None]] = {}  # by tenant, in the order in which it came
        self._askers: dict[Work, set[str | None]] = {}  # of what waits
        self._running: dict[Work, str | None] = {}
        self._turn = 0
        self._last_turn: dict[str | None, int] = {}  # of tenants with work

    def ask(self, work: Work, tenant: str | None) -> None:
        """Add work; what others asked for already waits for this tenant's turn, too. What runs stays as it is."""
        if work not in self._running:
            self._waiting.setdefault(tenant, {}).setdefault(work)
            self._askers.setdefault(work, set()).add(tenant)

    def begin(self) -> list[Work]:
        """Return what may begin now; it runs until `end`."""
        begun: list[Work] = []
        while self._waiting and len(self._running) < self._limit:
            running = Counter(self._running.values())
            tenant = min(self._waiting, key=lambda each: (running[each], self._last_turn.get(each, 0)))
            work = next(iter(self._waiting[tenant]))
            self._turn += 1
            self._running[work], self._last_turn[tenant] = tenant, self._turn
            self._leave(work)
            begun.append(work)
        return begun

    def end(self, work: Work) -> None:
        """Remove work that has ended, or that is given up before its turn."""
        self._leave(work)
        if work in self._running:
            self._forget(self._running.pop(work))

    def _leave(self, work: Work) -> None:
        for tenant in self._askers.pop(work, ()):
            waiting = self._waiting[tenant]
            del waiting[work]
            if not waiting:
                del self._waiting[tenant]
                self._forget(tenant)

    def _forget(self, tenant: str | None) -> None:
        """Forget the last turn of a tenant that has no work any more."""
        if tenant not in self._waiting and tenant not in self._running.values():
            self._last_turn.pop(tenant, None)
