"""The creates that wait for instances of one template, by tenant and run. Plain data, no I/O."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, TypeVar

from sandlot_contract.template import Template

from .fair_queue import Place

T = TypeVar("T")

_NOWHERE = Place(behind=True, serial=0)
by_place = attrgetter("place")


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


@dataclass(slots=True)
class TemplateLine(Generic[T]):
    """All waiters for one template by tenant and run, the first of each run first."""

    of: dict[str, dict[str, list[Waiter[T]]]] = field(default_factory=dict)
    images: Counter[str] = field(default_factory=Counter)
    tenants: Counter[str] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[Waiter[T]]:
        return (waiter for runs in self.of.values() for waiters in runs.values() for waiter in waiters)

    def runs(self, tenant: str | None) -> list[tuple[str, list[list[Waiter[T]]]]]:
        """Return the waiters of each run of this tenant, or of all tenants, each with the tenant's name."""
        names = self.of if tenant is None else [tenant] if tenant in self.of else []
        return [(name, [*self.of[name].values()]) for name in names]

    def add(self, waiter: Waiter[T]) -> None:
        runs = self.of.setdefault(waiter.tenant, {})
        insort(runs.setdefault(waiter.run, []), waiter, key=by_place)
        self.images[waiter.template.image] += 1
        self.tenants[waiter.tenant] += 1

    def remove(self, waiter: Waiter[T]) -> None:
        runs = self.of[waiter.tenant]
        waiters = runs[waiter.run]
        del waiters[bisect_left(waiters, waiter.place, key=by_place)]
        if not waiters:
            del runs[waiter.run]
        if not runs:
            del self.of[waiter.tenant]
        for counter, name in ((self.images, waiter.template.image), (self.tenants, waiter.tenant)):
            counter[name] -= 1
            if not counter[name]:
                del counter[name]
