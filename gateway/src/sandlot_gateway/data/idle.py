"""Keeps idle connections for the next request to their upstream, last used first."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice

from .conn import Connection


class IdleConnections:
    """Idle connections by key; `sweep` closes those unused for more than `timeout` seconds."""

    def __init__(self, *, timeout: float, max_per_key: int, max_all: int) -> None:
        self._timeout = timeout
        self._max_per_key = max_per_key
        self._max_all = max_all
        self._by_key: dict[str, deque[Connection]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def take(self, key: str) -> Connection | None:
        idle = self._by_key.get(key)
        if not idle:
            return None
        connection = idle.pop()
        self._count -= 1
        if not idle:
            del self._by_key[key]
        connection.idle = False
        return connection

    def keep(self, connection: Connection, *, until: float | None = None) -> None:
        """Keep a connection, or close it at the limit; `until` (loop's clock) replaces the usual expiry."""
        idle = self._by_key.get(connection.address, ())
        if len(idle) >= self._max_per_key or self._count >= self._max_all:
            connection.close()
            return
        connection.idle = True
        connection.idle_until = asyncio.get_running_loop().time() + self._timeout if until is None else until
        connection.on_idle_lost = self._lost
        self._by_key.setdefault(connection.address, deque()).append(connection)
        self._count += 1

    def close(self, key: str) -> None:
        for connection in self._by_key.pop(key, ()):
            self._close(connection)

    def close_some(self, count: int) -> None:
        """Close the connections of this many upstreams, or all, those first that have had one for longest."""
        for key in list(islice(self._by_key, count)):
            self.close(key)

    def close_all(self) -> None:
        for key in list(self._by_key):
            self.close(key)

    def sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        for key, idle in list(self._by_key.items()):
            for connection in [one for one in idle if one.idle_until <= now]:
                idle.remove(connection)
                self._close(connection)
            if not idle:
                del self._by_key[key]

    def _close(self, connection: Connection) -> None:
        self._count -= 1
        connection.idle = False
        connection.close()

    def _lost(self, connection: Connection) -> None:
        idle = self._by_key[connection.address]
        idle.remove(connection)
        self._count -= 1
        if not idle:
            del self._by_key[connection.address]
