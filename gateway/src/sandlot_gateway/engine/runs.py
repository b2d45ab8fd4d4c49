"""Keeps the leases of training runs: hears renewals, finds lost runs, and ends their sandboxes.

Renewals are heard in memory, and a quarter of the grace later they are in the store, for all gateways together. Silence
counts only while this gateway could hear renewals and read the lease, so no outage of either loses a run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from sandlot_gateway.core import runs
from sandlot_gateway.core.backend import BackendError, Unavailable
from sandlot_gateway.core.fair_queue import Scheduling
from sandlot_gateway.core.run_tally import RunTally
from sandlot_gateway.core.runs import Lease, RunId, RunKey, RunRefused, RunRequest, RunStore, RunUnknown
from sandlot_gateway.directory import Directory
from sandlot_gateway.engine.run_ends import RunEnds
from sandlot_gateway.engine.run_leases import RunLeases
from sandlot_gateway.engine.run_limit import RunLimit
from sandlot_gateway.sandboxes import Sandbox

_log = logging.getLogger(__name__)

_TICK = 1.0  # seconds between two looks while there are runs
_IDLE = 30.0  # seconds between two reads of the store while none is known
_SHOWN = 60.0  # seconds at least: other gateways must see what is over


class Runs:
    """`end` ends a sandbox with a verdict and a message; a lease that is over is shown for `keep` seconds.

    `tally` forgets a run with its lease.
    """

    def __init__(
        self,
        store: RunStore,
        *,
        directory: Directory,
        end: Callable[[Sandbox, str, str], object],
        keep: float,
        tally: RunTally | None = None,
    ) -> None:
        self._store = store
        self._ends = RunEnds(directory, end)
        self._keep = max(keep, _SHOWN)
        self.tally = tally or RunTally(since=store.now())
        self._limit = RunLimit()
        self._leases = RunLeases(store, pause=_TICK, changed=self._ends.decide)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        # Apart, so that renewals are written in time however long the leases of other runs take to read.
        self._tasks = [
            asyncio.create_task(self._repeat(step), name=f"leases of runs: {step.__name__}")
            for step in (self.look, self.flush)
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    # Requests. All may raise BackendError.

    async def begin(self, tenant: str, run_id: RunId, asked: RunRequest) -> Lease:
        """Begin, resume or take over a run. Raises RunRefused, TooManyRuns."""
        key = tenant, run_id
        with self._limit.place(key, self._leases.known) as oldest:
            if oldest is not None:
                await self._leases.change(
                    oldest, lambda there: there if there is not None and there.active else None
                )
            lease = await self._leases.change(
                key,
                lambda there: runs.begun(there, asked, tenant=tenant, run_id=run_id, now=self._store.now()),
            )
        assert lease is not None
        await self._ends.of(self._leases.known, now=self._store.now, only=key)
        return lease

    async def renew(self, tenant: str, run_id: RunId, epoch: int) -> Lease:
        """Renew a run for all processes of this epoch. Raises RunUnknown, RunRefused."""
        lease = await self._checked((tenant, run_id), epoch)
        now = self._store.now()
        if self._leases.listening.is_deaf(lease, now=now):
            raise Unavailable(
                f"run {run_id} cannot be renewed: this gateway cannot read its lease now; try again after Retry-After"
            )
        self._leases.hear((tenant, run_id), epoch, now=now)
        return self._leases.with_heard(lease)

    async def finish(self, tenant: str, run_id: RunId, epoch: int | None) -> Lease:
        """End a run and its sandboxes. Raises RunUnknown, RunRefused."""

        def change(there: Lease | None) -> Lease:
            if there is None:
                raise RunUnknown(run_id)
            return runs.ended(there, epoch, now=self._store.now())

        key = tenant, run_id
        lease = await self._leases.change(key, change)
        assert lease is not None
        await self._ends.of(self._leases.known, now=self._store.now, only=key)
        return lease

    async def admit(self, tenant: str, run_id: RunId, epoch: int | None) -> int:
        """Return the epoch of a new sandbox of this run. Raises RunUnknown, RunRefused."""
        return (await self._checked((tenant, run_id), epoch)).epoch

    async def find(self, tenant: str, run_id: RunId) -> Lease:
        """Return a run. Raises RunUnknown."""
        return self._leases.with_heard(await self._read((tenant, run_id)))

    async def of_tenant(self, tenant: str) -> list[Lease]:
        """Return the tenant's runs, the newest first."""
        return sorted(await self._leases.of_tenant(tenant), key=lambda lease: -lease.began_at)

    def scheduling(self, tenant: str, run_id: RunId) -> Scheduling:
        """Return how a run's creates take turns; as those without a lease if it is not known to be active."""
        lease = self._leases.known.get((tenant, run_id))
        return (
            Scheduling(lease.weight, lease.priority) if lease is not None and lease.active else Scheduling()
        )

    async def _checked(self, key: RunKey, epoch: int | None) -> Lease:
        """Return a lease that is active. Only what the store says now refuses anyone."""
        if (lease := self._leases.known.get(key)) is not None:
            try:
                runs.check(lease, epoch)
            except RunRefused:
                pass
            else:
                return lease
        lease = await self._read(key)
        runs.check(lease, epoch)
        return lease

    async def _read(self, key: RunKey) -> Lease:
        if (lease := await self._leases.read(key)) is None:
            raise RunUnknown(key[1])
        return lease

    # In the background.

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        failing = False
        while True:
            try:
                await step()
                failing = False
            except BackendError as error:
                level = logging.DEBUG if failing else logging.WARNING
                _log.log(level, "cannot read or write the leases of runs, trying again: %s", error)
                failing = True
            except Exception:
                _log.exception("the leases of runs could not be looked at")
            await asyncio.sleep(_TICK)

    async def look(self) -> None:
        """Read the leases if it is time, and act on what is over; `start` calls it every second. Raises BackendError."""
        now = self._store.now()
        fresh = now - _SHOWN
        busy = any(
            lease.active or (lease.finished_at or 0.0) > fresh for lease in self._leases.known.values()
        )
        self._leases.pause = _TICK if busy or self._ends.any_missing else _IDLE
        if abs(now - self._leases.read_at) < self._leases.pause - _TICK / 2:
            return
        await self._leases.read_all()
        known, read_at = self._leases.known, self._leases.read_at
        self._ends.seen(known, now=read_at)
        self.tally.forget_but(known.keys(), now=read_at)
        failures: list[BackendError] = []
        # A lease that cannot be written keeps no other run from its end.
        for step in (self._expire, self._end_sandboxes, self._end_missing, self._forget):
            try:
                await step()
            except BackendError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    async def flush(self) -> None:
        """Write renewals that only this gateway has heard; `start` calls it every second. Raises BackendError."""
        now = self._store.now()
        late = [key for key in self._leases.unwritten() if _late(self._leases.known[key], now)]
        # Another gateway may have written one meanwhile.
        await self._change_all(
            late, lambda there: self._kept(there) if there is None or _late(there, now) else there
        )

    async def _expire(self) -> None:
        now = self._store.now()
        silent = [key for key, lease in self._leases.known.items() if self._expired(lease, now) is not lease]
        try:
            await self._change_all(silent, lambda there: self._expired(self._kept(there), self._store.now()))
        finally:
            for key in silent:
                if (lease := self._leases.known.get(key)) is not None and not lease.active:
                    _log.warning(
                        "a run is lost: its heartbeat stopped", extra={"tenant": key[0], "run": key[1]}
                    )

    async def _forget(self) -> None:
        now = self._store.now()

        def change(there: Lease | None) -> Lease | None:
            return None if there is None or runs.forgotten(there, now=now, keep=self._keep) else there

        old = [
            key
            for key, lease in self._leases.known.items()
            if runs.forgotten(lease, now=now, keep=self._keep)
        ]
        await self._change_all(old, change)

    def _kept(self, there: Lease | None) -> Lease | None:
        return None if there is None else self._leases.with_heard(there)

    def _expired(self, lease: Lease | None, now: float) -> Lease | None:
        if lease is None:
            return None
        effective = self._leases.with_heard(lease)
        lost = runs.expired(effective, now=now, listening_since=self._leases.listening.since_of(lease))
        return lease if lost is effective else lost

    async def _change_all(self, keys: Iterable[RunKey], change: runs.Change) -> None:
        await _all_done(self._leases.change(key, change, own=True) for key in keys)

    async def _end_sandboxes(self) -> None:
        await self._ends.of(self._leases.known, now=self._store.now)

    async def _end_missing(self) -> None:
        gone = self._ends.missing(now=self._store.now(), listening_since=self._leases.listening.since)
        await _all_done(self._end_if_gone(key) for key in gone)

    async def _end_if_gone(self, key: RunKey) -> None:
        # A list may lack what another gateway has just begun, and what it cannot read is there.
        if await self._leases.read(key, own=True) is None:
            await self._ends.without(key)


def _late(lease: Lease, now: float) -> bool:
    return now - lease.renewed_at >= lease.grace / 4


async def _all_done(calls: Iterable[Awaitable[object]]) -> None:
    """Await all, also after one has failed. Raises the first failure."""
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
