"""The ready queue: warm instances without an owner, per template in the order of use. No I/O."""

from __future__ import annotations

import os
import zlib
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

from sandlot_contract.ids import InstanceId

from sandlot_gateway.core.instances import Instance

_Line = tuple[str | None, str]  # (pool, template key); pool None: across all pools


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
    """Holds each instance at most once. `rank` maps an id to its place when it is added; the lowest is taken first."""

    def __init__(self, *, rank: Rank) -> None:
        self._rank = rank
        self._instances: dict[InstanceId, Instance] = {}
        # Pool and rank at the time of `put`: the backend may move an instance to another pool later.
        self._put_as: dict[InstanceId, tuple[str | None, int]] = {}
        self._lines: dict[_Line, list[tuple[int, InstanceId]]] = {}
        self._in_pool: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._instances)

    def __contains__(self, instance_id: object) -> bool:
        return instance_id in self._instances

    def __iter__(self) -> Iterator[Instance]:
        return iter(self._instances.values())

    def put(self, instance: Instance) -> bool:
        """Add a ready instance; return False if it is queued already (its place stays)."""
        if instance.id in self._instances:
            return False
        place = (self._rank(instance.id), instance.id)
        self._instances[instance.id] = instance
        self._put_as[instance.id] = (instance.pool, place[0])
        for line in _lines_of(instance, instance.pool):
            insort(self._lines.setdefault(line, []), place)
        if instance.pool is not None:
            self._in_pool[instance.pool] += 1
        return True

    def take(
        self,
        template_key: str,
        *,
        pool: str | None = None,
        allowed: Callable[[str], bool] = lambda pool: True,
    ) -> Instance | None:
        """Remove and return the first instance of this template from the named pool, else from any `allowed` one."""
        for _, instance_id in self._lines.get((pool, template_key), ()):
            its_pool = self._put_as[instance_id][0]
            if its_pool is None or allowed(its_pool):
                return self.discard(instance_id)
        return None

    def shed(self, pool: str, *, keep: str | None = None) -> Instance | None:
        """Remove and return an instance of this pool, preferring a template other than `keep`."""
        lines = [key for name, key in self._lines if name == pool]
        key = next((key for key in lines if key != keep), keep)
        return self.take(key, pool=pool) if key is not None else None

    def discard(self, instance_id: InstanceId) -> Instance | None:
        """Remove this instance wherever it stands; return None if it is not queued."""
        instance = self._instances.pop(instance_id, None)
        if instance is None:
            return None
        pool, rank = self._put_as.pop(instance_id)
        for name in _lines_of(instance, pool):
            line = self._lines[name]
            del line[bisect_left(line, (rank, instance_id))]
            if not line:
                del self._lines[name]
        if pool is not None:
            self._in_pool[pool] -= 1
        return instance

    def count(self, pool: str) -> int:
        return self._in_pool[pool]

    def count_of(self, pool: str, template_key: str) -> int:
        """Count this pool's instances of this template; the pool may have had another one before."""
        return len(self._lines.get((pool, template_key), ()))


def _lines_of(instance: Instance, pool: str | None) -> list[_Line]:
    everybody: _Line = (None, instance.template.key)
    return [everybody] if pool is None else [everybody, (pool, instance.template.key)]
