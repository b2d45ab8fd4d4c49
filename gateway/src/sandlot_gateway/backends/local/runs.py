"""Keeps the leases of runs in a file: one gateway at a time has them, so what a renewal changes stays in memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from ...atomic_file import write_atomic
from ...core.backend import BackendError
from ...core.runs import Change, Lease, RunId

log = logging.getLogger(__name__)


class LocalRuns:
    """Implements `RunStore`. The leases of an earlier gateway are there from the first call on."""

    def __init__(self, path: Path, *, clock: Callable[[], float] | None = None) -> None:
        self._path = path
        self._clock = clock or _steady_clock()
        self._leases: dict[tuple[str, RunId], Lease] | None = None

    def now(self) -> float:
        return self._clock()

    async def all(self, *, answered: Callable[[], object] = lambda: None) -> list[Lease]:
        return list(self._loaded().values())

    async def find(self, tenant: str, run_id: RunId) -> Lease | None:
        return self._loaded().get((tenant, run_id))

    async def change(self, tenant: str, run_id: RunId, change: Change) -> Lease | None:
        leases = self._loaded()
        key = tenant, run_id
        there = leases.get(key)
        lease = change(there)
        if lease == there:
            return lease
        changed = (
            {**leases, key: lease} if lease is not None else {k: v for k, v in leases.items() if k != key}
        )
        if not _only_renewed(there, lease):
            self._save(list(changed.values()))
        self._leases = changed
        return lease

    def _loaded(self) -> dict[tuple[str, RunId], Lease]:
        if self._leases is None:
            self._leases = {(lease.tenant, lease.id): lease for lease in _load(self._path)}
        return self._leases

    def _save(self, leases: list[Lease]) -> None:
        try:
            write_atomic(self._path, msgspec.json.encode(leases))
        except OSError as error:
            raise BackendError(
                f"cannot write {self._path}: {error.strerror}; free space on the gateway's disk"
            ) from error


def _steady_clock() -> Callable[[], float]:
    """Return a clock that begins with the machine's, goes on while that sleeps, and that no one sets."""
    ahead = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return lambda: time.clock_gettime(time.CLOCK_BOOTTIME) + ahead


def _only_renewed(there: Lease | None, lease: Lease | None) -> bool:
    if there is None or lease is None:
        return False
    return msgspec.structs.replace(there, renewed_at=lease.renewed_at) == lease


def _load(path: Path) -> list[Lease]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Lease])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError) as error:
        log.warning(
            "cannot read %s: %s; its runs are forgotten, and end unless they begin again", path, error
        )
        return []
