"""Ends the sandboxes of runs that are over, and of runs whose lease is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core import runs
from sandlot_gateway.core.runs import Lease, RunId, RunKey
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox

_TOGETHER = 50  # sandboxes that end before other requests have a turn
_HEAD_START = 3.0  # seconds in which the gateway that found a run to be over ends its sandboxes


class RunEnds:
    """`end` ends a sandbox with a verdict and a message. Times are by the clock of the store."""

    def __init__(self, directory: Directory, end: Callable[[Sandbox, str, str], object]) -> None:
        self._directory = directory
        self._end = end
        self._decided: dict[RunKey, Lease] = {}  # as this gateway has left them
        self._missing: dict[RunKey, float] = {}  # runs of sandboxes, since when each look lacked their lease

    def decide(self, key: RunKey, lease: Lease) -> None:
        """Note a lease that this gateway has changed: it is the one that ends sandboxes at once."""
        self._decided[key] = lease

    def seen(self, leases: Mapping[RunKey, Lease], *, now: float) -> None:
        """Note which runs have no lease, by a fresh look at all."""
        for key in self._decided.keys() - leases.keys():
            del self._decided[key]
        missing = {_key(sandbox) for sandbox in self._leased()} - leases.keys()
        self._missing = {key: self._missing.get(key, now) for key in missing}

    @property
    def any_missing(self) -> bool:
        return bool(self._missing)

    def missing(self, *, now: float, listening_since: float) -> list[RunKey]:
        """Return the runs whose lease may be gone for good, as if it was deleted with kubectl."""
        return [
            key
            for key, since in self._missing.items()
            if now >= max(since, listening_since) + runs.UNKNOWN_SECONDS
        ]

    async def of(
        self, leases: Mapping[RunKey, Lease], *, now: Callable[[], float], only: RunKey | None = None
    ) -> None:
        """End the sandboxes whose run is over, whichever gateway found that; each time anew, so that none is missed."""

        def over(sandbox: Sandbox) -> tuple[SandboxVerdict, str] | None:
            key = _key(sandbox)
            return self._end_of(key, sandbox, leases.get(key), now=now())

        await self._end_all(over, only)

    async def without(self, key: RunKey) -> None:
        """End the sandboxes of a run whose lease is gone."""
        await self._end_all(
            lambda sandbox: (SandboxVerdict.RUN_LOST, f"the lease of run {sandbox.spec.run} is gone"), key
        )

    async def _end_all(
        self, over: Callable[[Sandbox], tuple[SandboxVerdict, str] | None], only: RunKey | None
    ) -> None:
        ended = 0
        for sandbox in list(self._leased()):
            if only is not None and _key(sandbox) != only:
                continue
            found = over(sandbox)
            if found is not None and sandbox.live:
                self._end(sandbox, *found)
                ended += 1
                if ended % _TOGETHER == 0:
                    await asyncio.sleep(0)

    def _end_of(
        self, key: RunKey, sandbox: Sandbox, lease: Lease | None, *, now: float
    ) -> tuple[SandboxVerdict, str] | None:
        if lease is None:
            return None
        epoch = sandbox.spec.run_epoch or 0
        decided = self._decided.get(key)
        if decided is None or runs.end_of(decided, epoch) is None:
            since = lease.finished_at or lease.began_at
            if now < since + _HEAD_START:
                return None  # each gateway that ends it calls its sidecar and writes its record
        return runs.end_of(lease, epoch)

    def _leased(self) -> Iterable[Sandbox]:
        return (sandbox for sandbox in self._directory.live() if sandbox.spec.run_epoch is not None)


def _key(sandbox: Sandbox) -> RunKey:
    return sandbox.tenant, RunId(sandbox.spec.run or "")
