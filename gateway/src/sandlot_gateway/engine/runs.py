"""Keeps the leases of training runs: hears renewals, finds lost runs, and ends their sandboxes.

Renewals are heard in memory, and a quarter of the grace later they are in the store, for all gateways together. Silence
counts only while this gateway could hear renewals and read the store, so no outage of either loses a run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core import runs
from sandlot_gateway.core.backend import BackendError, Unavailable
from sandlot_gateway.core.runs import Lease, RunId, RunRefused, RunRequest, RunStore, RunUnknown
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox

_log = logging.getLogger(__name__)

MOST = 200  # runs of one tenant, with those that were over within `keep`
_TICK = 1.0  # seconds between two looks while there are runs
_IDLE = 30.0  # seconds between two reads of the store while none is known
_GAP = 3.0  # seconds by which a read may be late; less than the shortest grace
_AT_ONCE = 8  # requests to the store, and as many of this gateway's own
_TOGETHER = 50  # sandboxes that end before other requests have a turn
_HEAD_START = 3.0  # seconds in which the gateway that found a run to be over ends its sandboxes
_SHOWN = 60.0  # seconds at least: other gateways must see what is over

_Key = tuple[str, RunId]


class TooManyRuns(Exception):
    """The tenant has as many active runs as it may."""


class Runs:
    """`end` ends a sandbox with a verdict and a message; a lease that is over is shown for `keep` seconds."""

    def __init__(
        self,
        store: RunStore,
        *,
        directory: Directory,
        end: Callable[[Sandbox, str, str], object],
        keep: float,
    ) -> None:
        self._store = store
        self._directory = directory
        self._end = end
        self._keep = max(keep, _SHOWN)
        self._leases: dict[_Key, Lease] = {}  # as read, or as changed here since
        self._heard: dict[_Key, tuple[int, float]] = {}  # epoch and time of renewals that the store may lack
        self._decided: dict[_Key, Lease] = {}  # as this gateway has left them
        # Times are by the store's clock.
        self._listening_since = float("inf")
        self._pause = _TICK
        self._read_at = float("-inf")  # of all leases
        self._reached_at = float("-inf")  # of the store's last answer
        self._at_once = asyncio.Semaphore(_AT_ONCE)  # requests of callers, which must not hold up the others
        self._own_at_once = asyncio.Semaphore(_AT_ONCE)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="leases of runs")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    # Requests. All may raise BackendError.

    async def begin(self, tenant: str, run_id: RunId, asked: RunRequest) -> Lease:
        """Begin, resume or take over a run. Raises RunRefused, TooManyRuns."""
        if (tenant, run_id) not in self._leases:
            await self._make_room(tenant)
        lease = await self._change(
            (tenant, run_id),
            lambda there: runs.begun(there, asked, tenant=tenant, run_id=run_id, now=self._store.now()),
        )
        assert lease is not None
        await self._end_sandboxes()
        return lease

    async def renew(self, tenant: str, run_id: RunId, epoch: int) -> Lease:
        """Renew a run for all processes of this epoch. Raises RunUnknown, RunRefused."""
        lease = await self._checked((tenant, run_id), epoch)
        now = self._store.now()
        if now - self._reached_at > max(lease.grace / 2, _GAP):
            # Another gateway may read what this one cannot, and find the run silent.
            raise Unavailable(
                f"run {run_id} cannot be renewed: this gateway cannot read its lease now; try again after Retry-After"
            )
        self._heard[tenant, run_id] = epoch, now
        return self._with_heard(lease)

    async def finish(self, tenant: str, run_id: RunId, epoch: int | None) -> Lease:
        """End a run and its sandboxes. Raises RunUnknown, RunRefused."""

        def change(there: Lease | None) -> Lease:
            if there is None:
                raise RunUnknown(run_id)
            return runs.ended(there, epoch, now=self._store.now())

        lease = await self._change((tenant, run_id), change)
        assert lease is not None
        await self._end_sandboxes()
        return lease

    async def admit(self, tenant: str, run_id: RunId, epoch: int | None) -> int:
        """Return the epoch of a new sandbox of this run. Raises RunUnknown, RunRefused."""
        return (await self._checked((tenant, run_id), epoch)).epoch

    async def find(self, tenant: str, run_id: RunId) -> Lease:
        """Return a run. Raises RunUnknown."""
        return self._with_heard(await self._read((tenant, run_id)))

    async def of_tenant(self, tenant: str) -> list[Lease]:
        """Return the tenant's runs, the newest first."""
        async with self._at_once:
            leases = await self._store.all()
        found = [self._with_heard(lease) for lease in leases if lease.tenant == tenant]
        return sorted(found, key=lambda lease: -lease.began_at)

    async def _checked(self, key: _Key, epoch: int | None) -> Lease:
        """Return a lease that is active. Only what the store says now refuses anyone."""
        if (lease := self._leases.get(key)) is not None:
            try:
                runs.check(lease, epoch)
            except RunRefused:
                pass
            else:
                return lease
        lease = await self._read(key)
        runs.check(lease, epoch)
        return lease

    async def _read(self, key: _Key) -> Lease:
        async with self._at_once:
            lease = await self._store.find(*key)
        self._learn(key, lease)
        if lease is None:
            raise RunUnknown(key[1])
        return lease

    async def _change(
        self, key: _Key, change: runs.Change, *, at_once: asyncio.Semaphore | None = None
    ) -> Lease | None:
        async with at_once or self._at_once:
            lease = await self._store.change(*key, change)
        self._learn(key, lease)
        if lease is not None:
            self._decided[key] = lease
        return lease

    def _learn(self, key: _Key, lease: Lease | None) -> None:
        self._reached_at = self._store.now()
        if lease is None:
            self._leases.pop(key, None)
        else:
            self._leases[key] = lease

    def _with_heard(self, lease: Lease) -> Lease:
        epoch, at = self._heard.get((lease.tenant, lease.id), (0, 0.0))
        return runs.heard(lease, epoch, at=at)

    async def _make_room(self, tenant: str) -> None:
        """Forget the tenant's oldest run that is over if it has as many as it may. Raises TooManyRuns."""
        own = [lease for lease in self._leases.values() if lease.tenant == tenant]
        if len(own) < MOST:
            return
        over = [lease for lease in own if not lease.active]
        if not over:
            raise TooManyRuns
        oldest = min(over, key=lambda lease: lease.finished_at or 0.0)
        await self._change(
            (tenant, oldest.id), lambda there: there if there is not None and there.active else None
        )

    # In the background.

    async def _run(self) -> None:
        failing = False
        while True:
            try:
                await self.look()
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
        busy = any(lease.active or (lease.finished_at or 0.0) > fresh for lease in self._leases.values())
        self._pause = _TICK if busy else _IDLE
        if abs(now - self._read_at) < self._pause - _TICK / 2:
            return
        await self._read_all()
        await self._flush()
        await self._expire()
        await self._end_sandboxes()
        await self._forget()

    async def _read_all(self) -> None:
        before = dict(self._leases)
        found = {(lease.tenant, lease.id): lease for lease in await self._store.all()}
        for key, lease in self._leases.items():
            if lease is not before.get(key):  # changed meanwhile
                found[key] = lease
        self._leases = found
        for key in self._decided.keys() - found.keys():
            del self._decided[key]
        now = self._store.now()
        # Also after a pause of this process, or of its machine.
        if now - self._read_at > self._pause + _GAP:
            self._listening_since = now
        self._read_at = self._reached_at = now

    async def _flush(self) -> None:
        """Write renewals that only this gateway has heard."""
        now = self._store.now()
        late: list[_Key] = []
        for key, (epoch, at) in list(self._heard.items()):
            lease = self._leases.get(key)
            if lease is None or not lease.active or lease.epoch != epoch or at <= lease.renewed_at:
                del self._heard[key]
            elif now - lease.renewed_at >= lease.grace / 4:
                late.append(key)
        await self._change_all(late, self._kept)

    async def _expire(self) -> None:
        now = self._store.now()
        silent = [key for key, lease in self._leases.items() if self._expired(lease, now) is not lease]
        await self._change_all(silent, lambda there: self._expired(self._kept(there), self._store.now()))
        for key in silent:
            if (lease := self._leases.get(key)) is not None and not lease.active:
                _log.warning("a run is lost: its heartbeat stopped", extra={"tenant": key[0], "run": key[1]})

    async def _forget(self) -> None:
        now = self._store.now()

        def change(there: Lease | None) -> Lease | None:
            return None if there is None or runs.forgotten(there, now=now, keep=self._keep) else there

        old = [key for key, lease in self._leases.items() if runs.forgotten(lease, now=now, keep=self._keep)]
        await self._change_all(old, change)

    def _kept(self, there: Lease | None) -> Lease | None:
        return None if there is None else self._with_heard(there)

    def _expired(self, lease: Lease | None, now: float) -> Lease | None:
        if lease is None:
            return None
        effective = self._with_heard(lease)
        lost = runs.expired(effective, now=now, listening_since=self._listening_since)
        return lease if lost is effective else lost

    async def _change_all(self, keys: Iterable[_Key], change: runs.Change) -> None:
        await asyncio.gather(*(self._change(key, change, at_once=self._own_at_once) for key in keys))

    def _leased(self) -> Iterable[Sandbox]:
        return (sandbox for sandbox in self._directory.live() if sandbox.spec.run_epoch is not None)

    async def _end_sandboxes(self) -> None:
        """End the sandboxes whose run is over, whichever gateway found that; each time anew, so that none is missed."""
        ended = 0
        for sandbox in list(self._leased()):
            over = self._end_of(sandbox)
            if over is not None and sandbox.live:
                self._end(sandbox, *over)
                ended += 1
                if ended % _TOGETHER == 0:
                    await asyncio.sleep(0)

    def _end_of(self, sandbox: Sandbox) -> tuple[str, str] | None:
        key = sandbox.tenant, RunId(sandbox.spec.run or "")
        epoch = sandbox.spec.run_epoch or 0
        lease, decided = self._leases.get(key), self._decided.get(key)
        if lease is None:
            return self._end_without(sandbox)
        if decided is None or runs.end_of(decided, epoch) is None:
            since = lease.finished_at or lease.began_at
            if self._store.now() < since + _HEAD_START:
                return None  # each gateway that ends it calls its sidecar and writes its record
        return runs.end_of(lease, epoch)

    def _end_without(self, sandbox: Sandbox) -> tuple[str, str] | None:
        """Return the end of a sandbox whose run no one knows, as if its lease was deleted with kubectl."""
        since = max(sandbox.created_at, self._listening_since)
        if self._store.now() < since + runs.UNKNOWN_SECONDS:
            return None
        return SandboxVerdict.RUN_LOST, f"the lease of run {sandbox.spec.run} is gone"
