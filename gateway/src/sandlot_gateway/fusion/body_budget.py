"""Bounds the memory of requests that run or wait: by default a few that are as large as allowed, of each tenant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_COPIES = 3  # of a body at most: as parsed, decoded from base64, and on its way to the sandbox


class NoRoom(Exception):
    """Raised when requests in flight hold all the memory that they may; a later one may find some."""


class BodyBudget:
    """Counts bytes of all tenants and of each."""

    def __init__(self, *, total: int = 512 << 20, tenant: int = 256 << 20) -> None:
        self._total = total
        self._tenant = tenant
        self._held: Counter[str] = Counter()

    @contextmanager
    def hold(self, tenant: str, body: int) -> Iterator[None]:
        """Count a body of this many bytes until the request ends. Raises NoRoom."""
        size = _COPIES * body
        if self._held.get(tenant, 0) + size > self._tenant:
            raise NoRoom("the bodies of this tenant's requests in flight are too large together")
        if self._held.total() + size > self._total:
            raise NoRoom("the bodies of all requests in flight are too large together")
        self._held[tenant] += size
        try:
            yield
        finally:
            self._held[tenant] -= size
            if not self._held[tenant]:
                del self._held[tenant]
