"""Warm instances of one kind and one tenant, indexed by image, node and pool. No I/O."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sandlot_contract.ids import InstanceId

from .instances import Instance

Place = tuple[int, InstanceId]
Pools = dict[str | None, list[Place]]  # pool -> instances in the order of use
Bound = tuple[
    str, str | None, str | None
]  # (kind, tenant that it is bound to, the only image that it serves)


def any_pool(pool: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Entry:
    """All but `instance` is of the time of `put`: its pool, its image and what it serves may change later."""

    instance: Instance
    bound: Bound
    pool: str | None
    image: str | None
    node: str | None
    place: Place


@dataclass(slots=True)
class ReadyIndex:
    """The instances of one kind and one tenant, indexed by what a create looks for."""

    all: dict[bool, Pools] = field(default_factory=dict)  # by whether they keep their image
    of_image: dict[str | None, Pools] = field(default_factory=dict)
    on_node: dict[str, Pools] = field(default_factory=dict)  # those that take any image

    def add(self, entry: Entry) -> None:
        for index, key in self._indices(entry):
            insort(index.setdefault(key, {}).setdefault(entry.pool, []), entry.place)

    def remove(self, entry: Entry) -> None:
        for index, key in self._indices(entry):
            pools = index[key]
            places = pools[entry.pool]
            del places[bisect_left(places, entry.place)]
            if not places:
                del pools[entry.pool]
            if not pools:
                del index[key]

    def _indices(self, entry: Entry) -> Iterator[tuple[dict[Any, Pools], Any]]:
        keeps = entry.bound[2] is not None
        yield self.all, keeps
        yield self.of_image, entry.image
        if not keeps and entry.node is not None:
            yield self.on_node, entry.node

    def __len__(self) -> int:
        return sum(len(places) for pools in self.all.values() for places in pools.values())

    def first(self, *, pool: str | None = None, allowed: Callable[[str], bool] = any_pool) -> Place | None:
        return min(heads(self.all.values(), pool=pool, allowed=allowed), default=None)


def heads(
    indexed: Iterable[Pools], *, pool: str | None = None, allowed: Callable[[str], bool] = any_pool
) -> Iterator[Place]:
    """Yield the first place of each pool that fits."""
    for pools in indexed:
        if pool is not None:
            if pool in pools and allowed(pool):
                yield pools[pool][0]
            continue
        for its, places in pools.items():
            if fits(its, pool=None, allowed=allowed):
                yield places[0]


def fits(its: str | None, *, pool: str | None, allowed: Callable[[str], bool]) -> bool:
    return (pool is None or its == pool) and (its is None or allowed(its))
