"""Queues of creates that wait for an instance: one per template, fair between tenants. Plain data, no I/O."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
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
class _Line(Generic[T]):
    heap: list[Waiter[T]] = field(default_factory=list)
    size: int = 0


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
        heapq.heappush(line.heap, waiter)
        line.size += 1
        self._of_tenant[waiter.tenant] += 1
        self._size += 1

    def first_of(self, key: str, tenant: str) -> Waiter[T] | None:
        """Return this tenant's next waiter for an instance of this template."""
        return min(self._of(key, tenant), default=None)

    def is_full(self, tenant: str, *, limit: int) -> bool:
        """Return whether to refuse this tenant; each has a tenth of the places, even beyond `limit`."""
        return self._size >= limit and self._of_tenant[tenant] >= min(limit, max(1, limit // 10))

    def waiting_of(self, key: str, tenant: str) -> int:
        return sum(1 for _ in self._of(key, tenant))

    def _of(self, key: str, tenant: str) -> Iterator[Waiter[T]]:
        line = self._lines.get(key)
        heap = line.heap if line is not None else []
        return (waiter for waiter in heap if waiter.waiting and waiter.tenant == tenant)

    def head(self, key: str) -> Waiter[T] | None:
        """Return the next waiter for an instance of this template."""
        line = self._lines.get(key)
        if line is None:
            return None
        while line.heap and not line.heap[0].waiting:
            heapq.heappop(line.heap)
        return line.heap[0] if line.heap else None

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
        return sorted(waiter for waiter in line.heap if waiter.waiting) if line is not None else []

    def remove(self, waiter: Waiter[T]) -> bool:
        """Leave the queue; return False if it had left before."""
        if not waiter.waiting:
            return False
        waiter.waiting = False
        line = self._lines[waiter.key]
        line.size -= 1
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
        ahead = sum(
            1 for line in self._lines.values() for other in line.heap if other.waiting and other < waiter
        )
        return ahead + 1
