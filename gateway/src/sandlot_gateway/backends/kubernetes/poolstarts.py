"""Pods of pools whose sidecars have not been heard: how many a pool has on their way."""

from __future__ import annotations

import time

from .instances import Entry


class PoolStarts:
    def __init__(self, *, counted_for: float) -> None:
        """`counted_for`: seconds after which one that is silent is no start any more."""
        self._counted_for = counted_for
        self._entries: dict[str, Entry] = {}

    def add(self, entry: Entry) -> None:
        self._entries[entry.instance.id] = entry

    def discard(self, instance_id: str) -> None:
        self._entries.pop(instance_id, None)

    def count(self, pool: str) -> int:
        since = time.monotonic() - self._counted_for
        return sum(entry.instance.pool == pool and entry.began > since for entry in self._entries.values())
