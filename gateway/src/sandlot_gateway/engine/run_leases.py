"""The leases of runs as this gateway knows them: as last read or changed, with the renewals that it has heard since."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sandlot_gateway.core import runs
from sandlot_gateway.core.runs import Lease, RunKey, RunStore
from sandlot_gateway.engine.run_listening import RunListening

_AT_ONCE = 8  # requests to the store, and as many of this gateway's own


class RunLeases:
    """`changed` is called for each lease that this gateway has changed. All methods that wait may raise BackendError.

    `pause`: seconds between two reads of all. Times are by the store's clock.
    """

    def __init__(self, store: RunStore, *, pause: float, changed: Callable[[RunKey, Lease], None]) -> None:
        self._store = store
        self._on_changed = changed
        self.pause = pause
        self.known: dict[RunKey, Lease] = {}  # as read, or as changed here since
        self.listening = RunListening()
        # Epoch and time of renewals that the store may lack.
        self._heard: dict[RunKey, tuple[int, float]] = {}
        self._looked_at = self.read_at = float("-inf")  # begin and end of the last read of all leases
        self._at_once = asyncio.Semaphore(_AT_ONCE)  # requests of callers, which must not hold up the others
        self._own_at_once = asyncio.Semaphore(_AT_ONCE)

    async def read(self, key: RunKey, *, own: bool = False) -> Lease | None:
        """Return a lease as the store has it. `own`: no caller waits."""
        async with self._own_at_once if own else self._at_once:
            lease = await self._store.find(*key)
        self._learn(key, lease)
        return lease

    async def change(self, key: RunKey, change: runs.Change, *, own: bool = False) -> Lease | None:
        """Change a lease in the store. `own`: no caller waits."""
        async with self._own_at_once if own else self._at_once:
            lease = await self._store.change(*key, change)
        self._learn(key, lease)
        if lease is not None:
            self._on_changed(key, lease)
        return lease

    async def of_tenant(self, tenant: str) -> list[Lease]:
        """Return the tenant's leases as the store has them, in no order."""
        async with self._at_once:
            leases = await self._store.all()
        return [self.with_heard(lease) for lease in leases if lease.tenant == tenant]

    async def read_all(self) -> None:
        """Make `known` what the store has, but for what was changed here meanwhile."""
        before, began_at = dict(self.known), self._store.now()
        leases = await self._store.all(answered=self._reached)
        found = {(lease.tenant, lease.id): lease for lease in leases}
        for key, lease in self.known.items():
            if lease is not before.get(key):  # changed meanwhile
                found[key] = lease
        for key, lease in found.items():
            self._appeared(key, lease)
        self.listening.keep(found)
        self.known = found
        self._reached()
        self._looked_at, self.read_at = began_at, self._store.now()

    def hear(self, key: RunKey, epoch: int, *, now: float) -> None:
        """Note a renewal."""
        self._heard[key] = epoch, now

    def with_heard(self, lease: Lease) -> Lease:
        """Return a lease with the renewals that this gateway has heard."""
        epoch, at = self._heard.get((lease.tenant, lease.id), (0, 0.0))
        return runs.heard(lease, epoch, at=at)

    def unwritten(self) -> list[RunKey]:
        """Return the leases whose renewals the store lacks; forget the renewals that it has, or that are void."""
        for key, (epoch, at) in list(self._heard.items()):
            lease = self.known.get(key)
            if lease is None or not lease.active or lease.epoch != epoch or at <= lease.renewed_at:
                del self._heard[key]
        return list(self._heard)

    def _learn(self, key: RunKey, lease: Lease | None) -> None:
        self._reached()
        if lease is None:
            self.known.pop(key, None)
        else:
            self._appeared(key, lease)
            self.known[key] = lease

    def _reached(self) -> None:
        self.listening.reached(self._store.now(), pause=self.pause)

    def _appeared(self, key: RunKey, lease: Lease) -> None:
        if key not in self.known:
            self.listening.appeared(key, lease, looked_at=self._looked_at, now=self._store.now())
