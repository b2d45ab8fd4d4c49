"""The ready queue: warm instances without an owner, per kind and tenant in the order of use. No I/O."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import merge
from itertools import count, islice

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template

from .instances import Instance, Kind, by_template
from .ready_index import Bound, Entry, Place, Pools, ReadyIndex, any_pool, fits, heads

Rank = Callable[[InstanceId], int]


def first_come() -> Rank:
    """Return a rank that makes the queue first in, first out."""
    numbers = count()
    return lambda _: next(numbers)


def by_chance() -> Rank:
    """Return a random rank for this process: gateways that all began with the oldest instance would race for it."""
    salt = os.urandom(8)
    return lambda instance_id: zlib.crc32(salt + instance_id.encode())


class ReadyQueue:
    """Holds each instance at most once. `rank` maps an id to its place when it is added; the lowest is taken first.

    An instance that is bound to a tenant is taken for that tenant only, and one that keeps its image only for that
    image. No operation looks at every instance: the queue is indexed by kind, tenant, image, node and pool.
    """

    def __init__(self, *, rank: Rank, kind: Kind = by_template) -> None:
        self._rank = rank
        self._kind = kind
        self._entries: dict[InstanceId, Entry] = {}
        self._by_kind: dict[str, dict[str | None, ReadyIndex]] = {}  # kind -> tenant -> instances
        self._in_pools: dict[str, Counter[Bound]] = {}
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
        entry = Entry(instance, bound, instance.pool, instance.image, instance.node, place)
        self._entries[instance.id] = entry
        self._by_kind.setdefault(bound[0], {}).setdefault(bound_to, ReadyIndex()).add(entry)
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
        tenants = self._by_kind.get(kind, {})

        def usable(entry: Entry) -> bool:
            if lays_image and entry.bound[2] is not None:
                return False
            if image is not None and entry.instance.has_own(image):
                return True
            there = entry.image == image or entry.node in nodes
            return entry.node not in avoid and (there or entry.instance.id not in held)

        def first(pools: Iterable[Pools]) -> Place | None:
            found = (
                self._heads_beyond(pools, pool=pool, allowed=allowed, usable=usable)
                if avoid or held or lays_image
                else heads(pools, pool=pool, allowed=allowed)
            )
            return min(found, default=None)

        for bound_to in (tenant, None):
            index = tenants.get(bound_to)
            if index is None:
                continue
            has = index.of_image.get(image, {}) if image is not None else {}
            place = first([has]) or first([index.all.get(False, {})])
            if place is None:
                continue
            entry = self._entries[place[1]]
            if entry.image != image and nodes and entry.node not in nodes:
                places = [
                    places
                    for its, places in index.all.get(False, {}).items()
                    if fits(its, pool=pool, allowed=allowed)
                ]
                near = self._near(places, nodes, usable=usable)
                if near is None:
                    some = (
                        nodes if len(nodes) < len(index.on_node) else [n for n in index.on_node if n in nodes]
                    )
                    near = first([index.on_node.get(node, {}) for node in some])
                place = near or place
            return self.discard(place[1])
        return None

    def _near(
        self, places: Iterable[list[Place]], nodes: Collection[str], *, usable: Callable[[Entry], bool]
    ) -> Place | None:
        """Return the first usable place on these nodes, if it is among the first ones of all.

        It is, if most nodes have a popular image: to look at each of them would take a millisecond for 10,000 nodes.
        """
        for place in islice(merge(*places), len(nodes)):
            entry = self._entries[place[1]]
            if entry.node in nodes and usable(entry):
                return place
        return None

    def _heads_beyond(
        self,
        pools: Iterable[Pools],
        *,
        pool: str | None,
        allowed: Callable[[str], bool],
        usable: Callable[[Entry], bool],
    ) -> Iterator[Place]:
        """Yield the first usable place of each pool."""
        for one in pools:
            for its, places in one.items():
                if not fits(its, pool=pool, allowed=allowed):
                    continue
                for place in places:
                    if usable(self._entries[place[1]]):
                        yield place
                        break

    def has_bound(self, kind: str) -> bool:
        """Return whether an instance of this kind is bound to a tenant."""
        return any(bound_to is not None for bound_to in self._by_kind.get(kind, ()))

    def evict(self, kind: str, *, tenant: str, allowed: Callable[[str], bool]) -> Instance | None:
        """Remove and return an instance that is bound to another tenant: to the one that has most."""
        most: tuple[int, Place] | None = None
        for bound_to, index in self._by_kind.get(kind, {}).items():
            if bound_to in (None, tenant):
                continue
            first, size = index.first(allowed=allowed), len(index)
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
        place = self._by_kind[kind][bound_to].first(pool=pool)
        return self.discard(place[1]) if place is not None else None

    def discard(self, instance_id: InstanceId) -> Instance | None:
        """Remove this instance wherever it stands; return None if it is not queued."""
        entry = self._entries.pop(instance_id, None)
        if entry is None:
            return None
        kind, bound_to, _ = entry.bound
        index = self._by_kind[kind][bound_to]
        index.remove(entry)
        if not index.all:
            del self._by_kind[kind][bound_to]
        if not self._by_kind[kind]:
            del self._by_kind[kind]
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
