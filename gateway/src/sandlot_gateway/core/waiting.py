"""Queues of creates that wait for an instance: one per template, fair between tenants. Plain data, no I/O."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sandlot_contract.template import Template

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Waiter(Generic[T]):
    """One create request in the queue; `value` belongs to the caller."""

    template: Template
    key: str
    tenant: str
    value: T
    rank: float = 0.0
    serial: int = 0
    waiting: bool = True

    def __lt__(self, other: Waiter[T]) -> bool:
        return (self.rank, self.serial) < (other.rank, other.serial)


@dataclass(slots=True)
class _Heap(Generic[T]):
    """Waiters of which some have left; `size` counts the others."""

    waiters: list[Waiter[T]] = field(default_factory=list)
    size: int = 0

    def add(self, waiter: Waiter[T]) -> None:
        heapq.heappush(self.waiters, waiter)
        self.size += 1

    def head(self) -> Waiter[T] | None:
        while self.waiters and not self.waiters[0].waiting:
            heapq.heappop(self.waiters)
        return self.waiters[0] if self.waiters else None

    def __iter__(self) -> Iterator[Waiter[T]]:
        return (waiter for waiter in self.waiters if waiter.waiting)

    def first(self, limit: int) -> Iterator[Waiter[T]]:
        """Yield the next waiters in order, looking at `limit` places at most."""
        places = [(self.waiters[0], 0)] if self.waiters else []
        for _ in range(limit):
            if not places:
                return
            waiter, index = heapq.heappop(places)
            if waiter.waiting:
                yield waiter
            for below in range(2 * index + 1, min(2 * index + 3, len(self.waiters))):
                heapq.heappush(places, (self.waiters[below], below))


@dataclass(slots=True)
class _Line(_Heap[T]):
    """All waiters for one template, and the same ones by tenant; `images` counts those of each image."""

    of: dict[str, _Heap[T]] = field(default_factory=dict)
    images: Counter[str] = field(default_factory=Counter)


class WaitList(Generic[T]):
    """Start-time fair queueing: each tenant's waiters are numbered in turns, and the lowest turn is served first.

    A tenant with a thousand requests delays another tenant's first one by one turn, not by a thousand.
    """

    def __init__(self) -> None:
        self._lines: dict[str, _Line[T]] = {}
        self._last_rank: dict[str, float] = {}
        self._of_tenant: Counter[str] = Counter()
        self._turn = 0.0
        self._serial = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, waiter: Waiter[T], *, front: bool = False) -> None:
        """Join the queue; `front` is for a create that had its turn and lost its instance to another claim."""
        self._serial += 1
        waiter.serial = self._serial
        if front:
            waiter.rank = self._turn
        else:
            waiter.rank = max(self._turn, self._last_rank.get(waiter.tenant, 0.0)) + 1
            self._last_rank[waiter.tenant] = waiter.rank
        waiter.waiting = True
        line = self._lines.setdefault(waiter.key, _Line())
        line.add(waiter)
        line.of.setdefault(waiter.tenant, _Heap()).add(waiter)
        line.images[waiter.template.image] += 1
        self._of_tenant[waiter.tenant] += 1
        self._size += 1

    def first_of(self, key: str, tenant: str) -> Waiter[T] | None:
        """Return this tenant's next waiter for an instance of this template."""
        own = self._of(key, tenant)
        return own.head() if own is not None else None

    def is_full(self, tenant: str, *, limit: int) -> bool:
        """Return whether to refuse this tenant; each has a tenth of the places, even beyond `limit`."""
        return self._size >= limit and self._of_tenant[tenant] >= min(limit, max(1, limit // 10))

    def waiting_of(self, key: str, tenant: str) -> int:
        own = self._of(key, tenant)
        return own.size if own is not None else 0

    def _of(self, key: str, tenant: str) -> _Heap[T] | None:
        line = self._lines.get(key)
        return line.of.get(tenant) if line is not None else None

    def head(self, key: str) -> Waiter[T] | None:
        """Return the next waiter for an instance of this template."""
        line = self._lines.get(key)
        return line.head() if line is not None else None

    def first(self, key: str, *, tenant: str | None = None, limit: int) -> Iterator[Waiter[T]]:
        """Yield the next waiters for this template, or this tenant's of them; `limit` bounds the work."""
        line = self._lines.get(key) if tenant is None else self._of(key, tenant)
        return line.first(limit) if line is not None else iter(())

    def pop(self, key: str) -> Waiter[T] | None:
        waiter = self.head(key)
        if waiter is not None:
            self.serve(waiter)
        return waiter

    def serve(self, waiter: Waiter[T]) -> None:
        """Remove a waiter that got its instance, in turn or not."""
        self._turn = max(self._turn, waiter.rank)
        self.remove(waiter)

    def in_line(self, key: str) -> list[Waiter[T]]:
        """Return the waiters for this template, the next one first."""
        line = self._lines.get(key)
        return sorted(line) if line is not None else []

    def of_images(self, key: str, images: Collection[str]) -> Iterator[Waiter[T]]:
        """Yield the waiters for this template and one of these images, in no order."""
        return (waiter for waiter in self._lines.get(key, ()) if waiter.template.image in images)

    def images(self, key: str) -> Collection[str]:
        """Return the images of the waiters for this template."""
        line = self._lines.get(key)
        return line.images.keys() if line is not None else ()

    def remove(self, waiter: Waiter[T]) -> bool:
        """Leave the queue; return False if it had left before."""
        if not waiter.waiting:
            return False
        waiter.waiting = False
        line = self._lines[waiter.key]
        line.size -= 1
        line.of[waiter.tenant].size -= 1
        if not line.of[waiter.tenant].size:
            del line.of[waiter.tenant]
        line.images[waiter.template.image] -= 1
        if not line.images[waiter.template.image]:
            del line.images[waiter.template.image]
        self._size -= 1
        self._of_tenant[waiter.tenant] -= 1
        if not self._of_tenant[waiter.tenant]:
            del self._of_tenant[waiter.tenant]
            self._last_rank.pop(waiter.tenant, None)
        if not line.size:
            del self._lines[waiter.key]
        return True

    def waiting(self, key: str) -> int:
        line = self._lines.get(key)
        return line.size if line is not None else 0

    def in_turn(self) -> list[str]:
        """Return the templates with waiters, the next one to be served first."""
        heads = [(head, key) for key in list(self._lines) if (head := self.head(key)) is not None]
        return [key for _, key in sorted(heads, key=lambda pair: pair[0])]

    def position(self, waiter: Waiter[T]) -> int:
        """Return the waiter's place, 1 for the next, counting all earlier waiters of any template."""
        ahead = sum(1 for line in self._lines.values() for other in line if other < waiter)
        return ahead + 1
