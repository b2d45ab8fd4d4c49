"""The queue of creates that wait for an instance: fair between tenants, and between the runs of each. No I/O."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Generic, NamedTuple, TypeVar

from sandlot_contract.template import Template

from .fair_queue import Place, Schedule, Turn, equal
from .tenant_queue import TenantQueue

T = TypeVar("T")

_NOWHERE = Place(behind=True, serial=0)
_MANY = 8  # finding one turn takes about as long as eight at once
_by_place = attrgetter("place")


@dataclass(slots=True, eq=False)
class Waiter(Generic[T]):
    """One create request in the queue; `value` belongs to the caller. `run` is "" for a create without one."""

    template: Template
    key: str
    tenant: str
    value: T
    run: str = ""
    place: Place = _NOWHERE
    waiting: bool = True

    @property
    def path(self) -> tuple[str, str]:
        return self.tenant, self.run


@dataclass(frozen=True, slots=True)
class Full:
    """Why a create may not wait: `limit` creates do, and its run has its share of its tenant's places."""

    waiting: int
    limit: int
    tenant: str
    of_tenant: int
    run: str
    of_run: int
    share: int  # of the run


class Ahead(NamedTuple):
    """How many waiters are before one: of its run, others, and those of the others whose priority is higher."""

    own: int
    others: float
    higher: float


@dataclass(slots=True)
class _Line(Generic[T]):
    """All waiters for one template by tenant and run, the first of each run first."""

    of: dict[tuple[str, str], list[Waiter[T]]] = field(default_factory=dict)
    images: Counter[str] = field(default_factory=Counter)
    tenants: Counter[str] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[Waiter[T]]:
        return (waiter for waiters in self.of.values() for waiter in waiters)

    def runs(self, tenant: str | None) -> list[list[Waiter[T]]]:
        """Return the waiters of each run of this tenant, or of all tenants."""
        return [waiters for path, waiters in self.of.items() if tenant in (None, path[0])]

    def add(self, waiter: Waiter[T]) -> None:
        insort(self.of.setdefault(waiter.path, []), waiter, key=_by_place)
        self.images[waiter.template.image] += 1
        self.tenants[waiter.tenant] += 1

    def remove(self, waiter: Waiter[T]) -> None:
        waiters = self.of[waiter.path]
        del waiters[bisect_left(waiters, waiter.place, key=_by_place)]
        if not waiters:
            del self.of[waiter.path]
        for counter, name in ((self.images, waiter.template.image), (self.tenants, waiter.tenant)):
            counter[name] -= 1
            if not counter[name]:
                del counter[name]


class WaitList(Generic[T]):
    """One fair queue of all waiters, and a line for each template. Waiters take turns whatever they wait for."""

    def __init__(self, schedule: Schedule = equal) -> None:
        self._queue = TenantQueue(schedule)
        self._lines: dict[str, _Line[T]] = {}
        self._serial = 0
        # Both are found again when they are needed after a change: waiters by serial, and templates, in turn.
        self._ranks: dict[int, int] | None = None
        self._keys: list[str] | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, waiter: Waiter[T], *, front: bool = False) -> None:
        """Join the queue; `front` is for a create that had its turn and lost its instance to another claim."""
        self._serial += 1
        waiter.place = Place(behind=not front, serial=self._serial)
        waiter.waiting = True
        self._queue.add(waiter.path, waiter.place, waiter.key)
        self._ranks = self._keys = None
        self._lines.setdefault(waiter.key, _Line()).add(waiter)

    def reschedule(self) -> bool:
        """Let the weights and priorities of now hold also for those that wait; return whether any has changed."""
        if changed := self._queue.reschedule():
            self._ranks = self._keys = None
        return changed

    def priority(self, tenant: str, run: str) -> int:
        """Return the priority of a run that waits."""
        return self._queue.priority((tenant, run))

    def outranked(self, tenant: str, run: str, keys: Collection[str]) -> bool:
        """Return whether creates of its tenant for one of these templates wait with a higher priority."""
        if not self._queue.above((tenant, run)):
            return False
        own = self.priority(tenant, run)
        paths = {path for key in keys if key in self._lines for path in self._lines[key].of}
        return any(path[0] == tenant and self.priority(*path) > own for path in paths)

    def turn(self, waiter: Waiter[T]) -> Turn:
        """Return what orders the waiters for one template, until one joins or leaves: the lowest is next."""
        if self._queue.of_one_kind(waiter.tenant):
            return self._place_turn(waiter)
        return self._queue.of_kind(waiter.tenant, waiter.key)[self._rank(waiter)]

    def start_turn(self, waiter: Waiter[T]) -> Turn:
        """Return what orders the waiters for different templates, of which any may be next.

        A tenant's come by priority. A turn that has passed is only for the template for which it was waited.
        """
        by_place = self._place_turn(waiter)
        if not self._queue.due(by_place) or self._queue.due(own := self.turn(waiter)):
            return by_place
        return own

    def _place_turn(self, waiter: Waiter[T]) -> Turn:
        return self._queue.turn(waiter.path, waiter.place)

    def _rank(self, waiter: Waiter[T]) -> int:
        """Return how many waiters of its tenant for its template are before this one."""
        of = self._lines[waiter.key].of
        mine = self._place_turn(waiter)
        return sum(
            bisect_left(waiters, waiter.place, key=_by_place)
            if path == waiter.path
            else bisect_left(waiters, mine, key=self._place_turn)
            for path, waiters in of.items()
            if path[0] == waiter.tenant
        )

    def full(self, tenant: str, run: str, *, limit: int) -> Full | None:
        """Return why to refuse a create of this run, if it is to be.

        Even beyond `limit` each tenant has a tenth of it, and each of its runs an even share of that tenth.
        """
        share = self._queue.full((tenant, run), limit)
        if share is None:
            return None
        of_tenant, of_run = self._queue.size((tenant,)), self._queue.size((tenant, run))
        return Full(len(self), limit, tenant, of_tenant, run, of_run, share)

    def head(self, key: str, *, tenant: str | None = None) -> Waiter[T] | None:
        """Return the next waiter for an instance of this template, or this tenant's next one."""
        line = self._lines.get(key)
        heads = [waiters[0] for waiters in line.runs(tenant)] if line is not None else []
        # Without a choice its turn does not matter, and finding it takes longer.
        if len(heads) < 2:
            return heads[0] if heads else None
        order, of_tenants = self._order(len(heads)), defaultdict[str, list[Waiter[T]]](list)
        for head in heads:
            of_tenants[head.tenant].append(head)
        firsts = [min(of_tenant, key=order) for of_tenant in of_tenants.values()]
        return firsts[0] if len(firsts) == 1 else min(firsts, key=self.turn)

    def first(self, key: str, *, tenant: str | None = None, limit: int | None = None) -> Iterator[Waiter[T]]:
        """Yield the next waiters for this template, or this tenant's of them; `limit` bounds the work."""
        line = self._lines.get(key)
        runs: defaultdict[str, list[list[Waiter[T]]]] = defaultdict(list)
        for waiters in line.runs(tenant) if line is not None else ():
            runs[waiters[0].tenant].append(waiters)
        order = self._order(sum(map(len, runs.values())))
        of_tenants = [
            zip(self._queue.of_kind(name, key), heapq.merge(*of_tenant, key=order), strict=True)
            for name, of_tenant in runs.items()
        ]
        return (waiter for _, waiter in islice(heapq.merge(*of_tenants, key=itemgetter(0)), limit))

    def in_line(self, key: str) -> list[Waiter[T]]:
        """Return the waiters for this template, the next one first."""
        return [*self.first(key)]

    def of_images(self, key: str, images: Collection[str]) -> Iterator[Waiter[T]]:
        """Yield the waiters for this template and one of these images, in no order."""
        return (waiter for waiter in self._lines.get(key, ()) if waiter.template.image in images)

    def of_highest_priority(self, waiters: Iterable[Waiter[T]]) -> list[Waiter[T]]:
        """Return those of these waiters before which none of their tenant has a higher priority."""
        highest: dict[str, int] = {}
        ranked = [(waiter, self.priority(waiter.tenant, waiter.run)) for waiter in waiters]
        for waiter, priority in ranked:
            highest[waiter.tenant] = max(priority, highest.get(waiter.tenant, priority))
        return [waiter for waiter, priority in ranked if priority == highest[waiter.tenant]]

    def images(self, key: str) -> Collection[str]:
        """Return the images of the waiters for this template."""
        line = self._lines.get(key)
        return line.images.keys() if line is not None else ()

    def pop(self, key: str) -> Waiter[T] | None:
        waiter = self.head(key)
        if waiter is not None:
            self.serve(waiter)
        return waiter

    def serve(self, waiter: Waiter[T]) -> None:
        """Remove a waiter that got its instance, in turn or not."""
        self._queue.serve(waiter.path, waiter.place, self.turn(waiter))
        self._left(waiter)

    def remove(self, waiter: Waiter[T]) -> bool:
        """Leave the queue; return False if it had left before."""
        if not waiter.waiting:
            return False
        self._queue.leave(waiter.path, waiter.place, self.turn(waiter))
        self._left(waiter)
        return True

    def _left(self, waiter: Waiter[T]) -> None:
        waiter.waiting = False
        self._ranks = self._keys = None
        line = self._lines[waiter.key]
        line.remove(waiter)
        if not line.of:
            del self._lines[waiter.key]

    def waiting(self, key: str, *, tenant: str | None = None) -> int:
        """Count the waiters for this template, or this tenant's of them."""
        line = self._lines.get(key)
        if line is None:
            return 0
        return line.tenants.total() if tenant is None else line.tenants[tenant]

    def in_turn(self) -> Sequence[str]:
        """Return the templates with waiters, the next one to be served first."""
        if self._keys is None:
            heads = [head for key in self._lines if (head := self.head(key)) is not None]
            self._keys = [head.key for head in sorted(heads, key=self.start_turn)]
        return self._keys

    def position(self, waiter: Waiter[T]) -> int:
        """Return the waiter's place, 1 for the next, counting all earlier waiters of any template.

        Those of other tenants are counted as if its tenant waited for one template only.
        """
        return self._queue.index(waiter.path, waiter.place) + 1

    def ahead(self, waiter: Waiter[T]) -> Ahead:
        own = self._queue.ahead(waiter.path, waiter.place)
        others = self._queue.index(waiter.path, waiter.place) - own
        return Ahead(own, others, self._queue.above(waiter.path))

    def ahead_of_kind(self, waiter: Waiter[T]) -> Ahead:
        """Return the same of waiters for the same template; about how many of other runs.

        Of these, it is the share that they have of all other waiters: counting them for each waiter that is shown
        would take too long.
        """
        own = self._lines[waiter.key].of[waiter.path]
        of_others = len(self) - self._queue.size(waiter.path)
        share = (self.waiting(waiter.key) - len(own)) / of_others if of_others else 0.0
        ahead = self.ahead(waiter)
        return Ahead(
            bisect_left(own, waiter.place, key=_by_place), ahead.others * share, ahead.higher * share
        )

    def _order(self, count: int) -> Callable[[Waiter[T]], Turn | int]:
        """Return what orders this many waiters: for many it is faster to find the order of all at once."""
        if count * _MANY < len(self):
            return self._place_turn
        if (ranks := self._ranks) is None:
            ranks = self._ranks = {place.serial: rank for rank, place in enumerate(self._queue.in_turn())}
        return lambda waiter: ranks[waiter.place.serial]
