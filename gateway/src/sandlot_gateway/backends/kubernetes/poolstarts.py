"""Pods of pools whose sidecars have not been heard: how many a pool has on their way."""

from __future__ import annotations

import time

from .instances import Seen


class PoolStarts:
    def __init__(self, *, counted_for: float) -> None:
        """`counted_for`: seconds after which one that is silent is no start any more."""
        self._counted_for = counted_for
        self._seen: dict[str, Seen] = {}

    def add(self, seen: Seen) -> None:
        self._seen[seen.instance.id] = seen

    def discard(self, instance_id: str) -> None:
        self._seen.pop(instance_id, None)

    def count(self, pool: str) -> int:
        since = time.monotonic() - self._counted_for
        return sum(seen.instance.pool == pool and seen.since > since for seen in self._seen.values())
