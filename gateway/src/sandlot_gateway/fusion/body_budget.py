"""Bounds the memory of requests that arrive, wait or run: by default a few that are as large as allowed, of each tenant."""

from __future__ import annotations

from collections import Counter

from sandlot_gateway.bodies import Account, NoRoom

_COPIES = 3  # of a body at most: as parsed, decoded from base64, and on its way to the sandbox


class BodyBudget:
    """Counts bytes of all tenants and of each."""

    def __init__(self, *, total: int = 512 << 20, tenant: int = 256 << 20) -> None:
        self._total = total
        self._tenant = tenant
        self._held: Counter[str] = Counter()

    def account(self, tenant: str) -> BodyAccount:
        """Return what counts the body of one request of this tenant."""
        return BodyAccount(self, tenant)

    def take(self, tenant: str, size: int) -> None:
        """Count bytes. Raises NoRoom, and counts nothing then."""
        if self._held.get(tenant, 0) + size > self._tenant:
            raise NoRoom("the bodies of this tenant's requests in flight are too large together")
        if self._held.total() + size > self._total:
            raise NoRoom("the bodies of all requests in flight are too large together")
        self._held[tenant] += size

    def give_back(self, tenant: str, size: int) -> None:
        self._held[tenant] -= size
        if not self._held[tenant]:
            del self._held[tenant]


class BodyAccount(Account):
    """The bytes of one request's body."""

    def __init__(self, budget: BodyBudget, tenant: str) -> None:
        self._budget = budget
        self._tenant = tenant
        self._size = 0

    def add(self, size: int) -> None:
        self._budget.take(self._tenant, _COPIES * size)
        self._size += _COPIES * size

    def close(self) -> None:
        size, self._size = self._size, 0
        if size:
            self._budget.give_back(self._tenant, size)
