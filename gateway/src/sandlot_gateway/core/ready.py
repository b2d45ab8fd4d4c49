"""The ready queue: warm instances without an owner, per kind and tenant in the order of use. No I/O."""

from __future__ import annotations

import os
import zlib
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template

from sandlot_gateway.core.instances import Instance, Kind, by_template

Rank = Callable[[InstanceId], int]

_Place = tuple[int, InstanceId]
_Pools = dict[str | None, list[_Place]]  # pool -> instances in the order of use
_Bound = tuple[
    str, str | None, str | None
]  # (kind, tenant that it is bound to, the only image that it serves)


def first_come() -> Rank:
    """Return a rank that makes the queue first in, first out."""
    numbers = count()
    return lambda _: next(numbers)


def by_chance() -> Rank:
    """Return a random rank for this process: gateways that all began with the oldest instance would race for it."""
    salt = os.urandom(8)
    return lambda instance_id: zlib.crc32(salt + instance_id.encode())


def any_pool(pool: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class _Entry:
    """All but `instance` is of the time of `put`: its pool, its image and what it serves may change later."""

    instance: Instance
    bound: _Bound
    pool: str | None
    image: str | None
    node: str | None
    place: _Place


@dataclass(slots=True)
class _Shelf:
    """The instances of one kind and one tenant, indexed by what a create looks for."""

    all: dict[bool, _Pools] = field(default_factory=dict)  # by whether they keep their image
    of_image: dict[str | None, _Pools] = field(default_factory=dict)
    on_node: dict[str, _Pools] = field(default_factory=dict)  # those that take any image

    def add(self, entry: _Entry) -> None:
        for index, key in self._indices(entry):
            insort(index.setdefault(key, {}).setdefault(entry.pool, []), entry.place)

    def remove(self, entry: _Entry) -> None:
        for index, key in self._indices(entry):
            pools = index[key]
            places = pools[entry.pool]
            del places[bisect_left(places, entry.place)]
            if not places:
                del pools[entry.pool]
            if not pools:
                del index[key]

    def _indices(self, entry: _Entry) -> Iterator[tuple[dict[Any, _Pools], Any]]:
        keeps = entry.bound[2] is not None
        yield self.all, keeps
        yield self.of_image, entry.image
        if not keeps and entry.node is not None:
            yield self.on_node, entry.node

    def __len__(self) -> int:
        return sum(len(places) for pools in self.all.values() for places in pools.values())

    def first(self, *, pool: str | None = None, allowed: Callable[[str], bool] = any_pool) -> _Place | None:
        return min(_heads(self.all.values(), pool=pool, allowed=allowed), default=None)


class ReadyQueue:
    """Holds each instance at most once. `rank` maps an id to its place when it is added; the lowest is taken first.

    An instance that is bound to a tenant is taken for that tenant only, and one that keeps its image only for that
    image. No operation looks at every instance: the queue is indexed by kind, tenant, image, node and pool.
    """

    def __init__(self, *, rank: Rank, kind: Kind = by_template) -> None:
        self._rank = rank
        self._kind = kind
        self._entries: dict[InstanceId, _Entry] = {}
        self._shelves: dict[str, dict[str | None, _Shelf]] = {}  # kind -> tenant -> instances
        self._in_pools: dict[str, Counter[_Bound]] = {}
        self._in_pool: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, instance_id: object) -> bool:
        return instance_id in self._entries

    def __iter__(self) -> Iterator[Instance]:
        return (entry.instance for entry in self._entries.values())

    def put(self, instance: Instance, *, bound_to: str | None = None) -> bool:
        """Add a ready instance; return False if it is queued already (its place stays)."""
        if instance.id in self._entries:
            return False
        bound = (self._kind(instance.template), bound_to, _only_image(instance))
        place = (self._rank(instance.id), instance.id)
        entry = _Entry(instance, bound, instance.pool, instance.image, instance.node, place)
        self._entries[instance.id] = entry
        self._shelves.setdefault(bound[0], {}).setdefault(bound_to, _Shelf()).add(entry)
        if instance.pool is not None:
            self._in_pools.setdefault(instance.pool, Counter())[bound] += 1
            self._in_pool[instance.pool] += 1
        return True

    def is_outdated(self, instance: Instance) -> bool:
        """Return whether the instance serves other creates now than when it was added."""
        entry = self._entries.get(instance.id)
        return entry is not None and entry.bound[2] != _only_image(instance)

    def take(
        self,
        kind: str,
        *,
        image: str | None = None,
        tenant: str | None = None,
        pool: str | None = None,
        allowed: Callable[[str], bool] = any_pool,
        nodes: Collection[str] = (),
        avoid: Collection[str] = (),
        held: Collection[InstanceId] = (),
        lays_image: bool = False,
    ) -> Instance | None:
        """Remove and return the tenant's first instance of this kind, else the first one that is not bound.

        It is of the named pool, else of no pool or any `allowed` one. Of several, one that has the `image` is first,
        then one on `nodes`, which have it prepared. On nodes to `avoid`, only one with the image of its own is taken;
        of the `held` ones, only one that has the image or is on `nodes`. `lays_image`: none that keeps its image.
        """
        shelves = self._shelves.get(kind, {})

        def usable(entry: _Entry) -> bool:
            if lays_image and entry.bound[2] is not None:
                return False
            if image is not None and entry.instance.has_own(image):
                return True
            there = entry.image == image or entry.node in nodes
            return entry.node not in avoid and (there or entry.instance.id not in held)

        def first(pools: Iterable[_Pools]) -> _Place | None:
            heads = (
                self._heads_beyond(pools, pool=pool, allowed=allowed, usable=usable)
                if avoid or held or lays_image
                else _heads(pools, pool=pool, allowed=allowed)
            )
            return min(heads, default=None)

        for bound_to in (tenant, None):
            shelf = shelves.get(bound_to)
            if shelf is None:
                continue
            has = shelf.of_image.get(image, {}) if image is not None else {}
            place = first([has]) or first([shelf.all.get(False, {})])
            if place is None:
                continue
            entry = self._entries[place[1]]
            if entry.image != image and nodes and entry.node not in nodes:
                some = nodes if len(nodes) < len(shelf.on_node) else [n for n in shelf.on_node if n in nodes]
                place = first([shelf.on_node.get(node, {}) for node in some]) or place
            return self.discard(place[1])
        return None

    def _heads_beyond(
        self,
        pools: Iterable[_Pools],
        *,
        pool: str | None,
        allowed: Callable[[str], bool],
        usable: Callable[[_Entry], bool],
    ) -> Iterator[_Place]:
        """Yield the first usable place of each pool."""
        for one in pools:
            for its, places in one.items():
                if not _fits(its, pool=pool, allowed=allowed):
                    continue
                for place in places:
                    if usable(self._entries[place[1]]):
                        yield place
                        break

    def has_bound(self, kind: str) -> bool:
        """Return whether an instance of this kind is bound to a tenant."""
        return any(bound_to is not None for bound_to in self._shelves.get(kind, ()))

    def evict(self, kind: str, *, tenant: str, allowed: Callable[[str], bool]) -> Instance | None:
        """Remove and return an instance that is bound to another tenant: to the one that has most."""
        most: tuple[int, _Place] | None = None
        for bound_to, shelf in self._shelves.get(kind, {}).items():
            if bound_to in (None, tenant):
                continue
            first, size = shelf.first(allowed=allowed), len(shelf)
            if first is not None and (most is None or size > most[0]):
                most = (size, first)
        return self.discard(most[1][1]) if most is not None else None

    def shed(self, pool: str, *, keep: str | None = None) -> Instance | None:
        """Remove and return an instance of this pool, preferring a kind other than `keep`, then bound ones."""
        here = self._in_pools.get(pool)
        if here is None:
            return None
        kind, bound_to, _ = max(
            here,
            key=lambda bound: (bound[0] != keep, bound[1] is not None, bound[2] is not None, here[bound]),
        )
        place = self._shelves[kind][bound_to].first(pool=pool)
        return self.discard(place[1]) if place is not None else None

    def discard(self, instance_id: InstanceId) -> Instance | None:
        """Remove this instance wherever it stands; return None if it is not queued."""
        entry = self._entries.pop(instance_id, None)
        if entry is None:
            return None
        kind, bound_to, _ = entry.bound
        shelf = self._shelves[kind][bound_to]
        shelf.remove(entry)
        if not shelf.all:
            del self._shelves[kind][bound_to]
        if not self._shelves[kind]:
            del self._shelves[kind]
        if entry.pool is not None:
            self._in_pool[entry.pool] -= 1
            here = self._in_pools[entry.pool]
            here[entry.bound] -= 1
            if not here[entry.bound]:
                del here[entry.bound]
            if not here:
                del self._in_pools[entry.pool]
        return entry.instance

    def count(self, pool: str) -> int:
        return self._in_pool[pool]

    def count_of(self, pool: str, template: Template, *, tenant: str) -> int:
        """Count this pool's instances that can serve this template and that the tenant may get."""
        here = self._in_pools.get(pool, {})
        kind = self._kind(template)
        return sum(
            here.get((kind, bound_to, only), 0)
            for bound_to in (tenant, None)
            for only in (template.image, None)
        )


def _only_image(instance: Instance) -> str | None:
    return instance.template.image if instance.keeps_image else None


def _heads(
    indexed: Iterable[_Pools], *, pool: str | None = None, allowed: Callable[[str], bool] = any_pool
) -> Iterator[_Place]:
    """Yield the first place of each pool that fits."""
    for pools in indexed:
        if pool is not None:
            if pool in pools and allowed(pool):
                yield pools[pool][0]
            continue
        for its, places in pools.items():
            if _fits(its, pool=None, allowed=allowed):
                yield places[0]


def _fits(its: str | None, *, pool: str | None, allowed: Callable[[str], bool]) -> bool:
    return (pool is None or its == pool) and (its is None or allowed(its))
