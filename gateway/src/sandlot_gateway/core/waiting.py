"""The queue of creates that wait for an instance: fair between tenants, and between the runs of each. No I/O."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

from .fair_queue import Place, Schedule, Turn, equal
from .template_line import TemplateLine, Waiter, by_place
from .tenant_queue import TenantQueue

T = TypeVar("T")

_MANY = 8  # finding one turn takes about as long as eight at once


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


class WaitList(Generic[T]):
    """One fair queue of all waiters, and a line for each template. Waiters take turns whatever they wait for."""

    def __init__(self, schedule: Schedule = equal) -> None:
        self._queue = TenantQueue(schedule)
        self._lines: dict[str, TemplateLine[T]] = {}
        self._serial = 0
        # Both are found again when they are needed after a change: by serial the turn that each waiter has whatever its
        # kind, and the templates in turn.
        self._turns: dict[int, Turn] | None = None
        self._keys: list[str] | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, waiter: Waiter[T], *, front: bool = False) -> None:
        """Join the queue; `front` is for a create that had its turn and lost its instance to another claim."""
        self._serial += 1
        waiter.place = Place(behind=not front, serial=self._serial)
        waiter.waiting = True
        self._queue.add(waiter.path, waiter.place, waiter.key)
        self._turns = self._keys = None
        self._lines.setdefault(waiter.key, TemplateLine()).add(waiter)

    def reschedule(self) -> bool:
        """Let the weights and priorities of now hold also for those that wait; return whether any has changed."""
        if changed := self._queue.reschedule():
            self._turns = self._keys = None
        return changed

    def priority(self, tenant: str, run: str) -> int:
        """Return the priority of a run that waits."""
        return self._queue.priority((tenant, run))

    def outranked(self, tenant: str, run: str, keys: Collection[str]) -> bool:
        """Return whether creates of its tenant for one of these templates wait with a higher priority."""
        if not self._queue.above((tenant, run)):
            return False
        own = self.priority(tenant, run)
        runs = {other for key in keys if key in self._lines for other in self._lines[key].of.get(tenant, ())}
        return any(self.priority(tenant, other) > own for other in runs)

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
        if self._turns is not None:
            return self._turns[waiter.place.serial]
        return self._queue.turn(waiter.path, waiter.place)

    def _rank(self, waiter: Waiter[T], most: int | None = None) -> int:
        """Return how many waiters of its tenant for its template are before this one; `most`: more do not matter."""
        runs = self._lines[waiter.key].of[waiter.tenant]
        rank = bisect_left(runs[waiter.run], waiter.place, key=by_place)
        if len(runs) == 1:
            return rank
        mine, turn = self._place_turn(waiter), self._place_turn
        for run, waiters in runs.items():
            if most is not None and rank >= most:
                break
            # Of most runs none is before one that is served.
            if run != waiter.run and turn(waiters[0]) < mine:
                rank += bisect_left(waiters, mine, lo=1, key=turn)
        return rank

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
        heads = [[waiters[0] for waiters in runs] for _, runs in self._runs(key, tenant)]
        order = self._order(sum(len(of_tenant) for of_tenant in heads if len(of_tenant) > 1))
        # Without a choice its turn does not matter, and finding it takes longer.
        firsts = [one[0] if len(one) == 1 else min(one, key=order) for one in heads]
        if len(firsts) < 2:
            return firsts[0] if firsts else None
        return min(firsts, key=lambda first: self._queue.next_of_kind(first.tenant, key))

    def first_of(self, waiters: Iterable[Waiter[T]]) -> Waiter[T] | None:
        """Return the next one of these, which wait for the same template."""
        of_tenants: defaultdict[str, list[Waiter[T]]] = defaultdict(list)
        for waiter in waiters:
            of_tenants[waiter.tenant].append(waiter)
        order = self._order(sum(map(len, of_tenants.values())))
        firsts = [min(of_tenant, key=order) for of_tenant in of_tenants.values()]
        return firsts[0] if len(firsts) == 1 else min(firsts, key=self.turn, default=None)

    def first(self, key: str, *, tenant: str | None = None, limit: int) -> Iterator[Waiter[T]]:
        """Yield the next waiters for this template, or this tenant's of them; `limit` bounds the work."""
        runs = self._runs(key, tenant)
        to_order = sum(len(of_tenant) for _, of_tenant in runs if len(of_tenant) > 1)
        order = self._order(to_order + limit if to_order else 0)
        of_tenants = [
            zip(self._queue.of_kind(name, key), heapq.merge(*of_tenant, key=order), strict=True)
            for name, of_tenant in runs
        ]
        return (waiter for _, waiter in islice(heapq.merge(*of_tenants, key=itemgetter(0)), limit))

    def in_line(self, key: str) -> list[Waiter[T]]:
        """Return the waiters for this template, the next one first."""
        runs = self._runs(key)
        order = self._order(sum(sum(map(len, of_tenant)) for _, of_tenant in runs if len(of_tenant) > 1))
        of_tenants = [
            (name, of_tenant[0] if len(of_tenant) == 1 else sorted(chain(*of_tenant), key=order))
            for name, of_tenant in runs
        ]
        if len(of_tenants) == 1:
            return [*of_tenants[0][1]]
        pairs = [
            pair
            for name, waiters in of_tenants
            for pair in zip(self._queue.of_kind(name, key), waiters, strict=True)
        ]
        pairs.sort(key=itemgetter(0))
        return [waiter for _, waiter in pairs]

    def _runs(self, key: str, tenant: str | None = None) -> Iterable[tuple[str, list[list[Waiter[T]]]]]:
        line = self._lines.get(key)
        return line.runs(tenant) if line is not None else []

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
        self._queue.leave(waiter.path, waiter.place, waiter.key, partial(self._rank, waiter))
        self._left(waiter)
        return True

    def _left(self, waiter: Waiter[T]) -> None:
        waiter.waiting = False
        self._turns = self._keys = None
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
        own = self._lines[waiter.key].of[waiter.tenant][waiter.run]
        of_others = len(self) - self._queue.size(waiter.path)
        share = (self.waiting(waiter.key) - len(own)) / of_others if of_others else 0.0
        ahead = self.ahead(waiter)
        return Ahead(bisect_left(own, waiter.place, key=by_place), ahead.others * share, ahead.higher * share)

    def _order(self, count: int) -> Callable[[Waiter[T]], Turn]:
        """Return what orders this many waiters: for many it is faster to find the turns of all at once."""
        if self._turns is None and count * _MANY >= len(self):
            self._turns = {place.serial: turn for turn, place in self._queue.taken()}
        return self._place_turn
