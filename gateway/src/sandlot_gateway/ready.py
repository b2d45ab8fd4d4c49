"""The ready queue: warm instances nobody owns, first in first out per template; plain data, no I/O."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator

from sandlot_gateway.backends.base import Instance

_Line = tuple[str | None, str]  # (pool, template key); pool None: the line over all pools


class ReadyQueue:
    """An instance is in it at most once. Every call takes constant time."""

    def __init__(self) -> None:
        self._instances: dict[str, Instance] = {}
        # As it was when it was put: the backend may move an instance to another pool at any time.
        self._pool_of: dict[str, str | None] = {}
        # OrderedDict, not dict: taking from the front of a dict again and again is quadratic.
        self._lines: dict[_Line, OrderedDict[str, None]] = {}
        self._in_pool: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._instances)

    def __contains__(self, instance_id: object) -> bool:
        return instance_id in self._instances

    def __iter__(self) -> Iterator[Instance]:
        return iter(self._instances.values())

    def put(self, instance: Instance) -> bool:
        """Add a ready instance at the end; False when it is in already (its place stays)."""
        if instance.id in self._instances:
            return False
        self._instances[instance.id] = instance
        self._pool_of[instance.id] = instance.pool
        for line in _lines_of(instance, instance.pool):
            self._lines.setdefault(line, OrderedDict())[instance.id] = None
        if instance.pool is not None:
            self._in_pool[instance.pool] += 1
        return True

    def take(self, template_key: str, *, pool: str | None = None) -> Instance | None:
        """The longest waiting instance of this template, from this pool when one is named."""
        line = self._lines.get((pool, template_key))
        return self.discard(next(iter(line))) if line else None

    def shed(self, pool: str, *, keep: str | None = None) -> Instance | None:
        """Any instance of this pool, one of another template than `keep` first."""
        lines = [key for name, key in self._lines if name == pool]
        key = next((key for key in lines if key != keep), keep)
        return self.take(key, pool=pool) if key is not None else None

    def discard(self, instance_id: str) -> Instance | None:
        """Take this very instance out, wherever it stands."""
        instance = self._instances.pop(instance_id, None)
        if instance is None:
            return None
        pool = self._pool_of.pop(instance_id)
        for name in _lines_of(instance, pool):
            line = self._lines[name]
            del line[instance_id]
            if not line:
                del self._lines[name]
        if pool is not None:
            self._in_pool[pool] -= 1
        return instance

    def count(self, pool: str) -> int:
        return self._in_pool[pool]

    def count_template(self, template_key: str) -> int:
        return len(self._lines.get((None, template_key), ()))


def _lines_of(instance: Instance, pool: str | None) -> list[_Line]:
    everybody: _Line = (None, instance.template.key)
    return [everybody] if pool is None else [everybody, (pool, instance.template.key)]
