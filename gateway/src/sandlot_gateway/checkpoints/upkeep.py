"""What the gateway does with the whole store of checkpoints: it measures it for tenants, and deletes what nobody names."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

from sandlot_gateway.checkpoints.interface import CheckpointStore
from sandlot_gateway.checkpoints.threads import StoreThreads
from sandlot_gateway.tasks import Tasks

_log = logging.getLogger(__name__)

_SWEEP_EVERY = 3600.0  # seconds
_MEASURING = 1.0  # seconds, of an answer that has other contents
_CUT_WITHIN = 0.5  # seconds, for the gateway's stop


class Upkeep:
    def __init__(self, store: CheckpointStore, *, threads: StoreThreads) -> None:
        self._store = store
        self._threads = threads
        self._tasks = Tasks()
        self._sweep_at = 0.0
        self._measuring: asyncio.Future[Mapping[str, int]] | None = None
        self._used: Mapping[str, int] | None = None  # by tenant, as measured last

    async def used_by(self, tenant: str) -> int | None:
        """Return the bytes of the tenant's archives as measured lately, or None if they cannot be measured now."""
        measuring = self._measuring
        if measuring is None or measuring.done():
            # One for all: no tenant can have all threads measure a store that does not answer.
            measuring = self._measuring = self._threads.begun(self._store.usage)
            measuring.add_done_callback(_retrieved)
        await asyncio.wait([measuring], timeout=_MEASURING)
        why: BaseException | None = None
        if measuring.done() and (why := measuring.exception()) is None:
            self._used = measuring.result()
        if self._used is None or why is not None:
            _log.warning("the checkpoints of %s cannot be measured: %s", tenant, why or "no answer")
            return None
        return self._used.get(tenant, 0)

    def sweep(self) -> None:
        """Delete in the background what nobody names, where it is time: no create waits for that."""
        if time.monotonic() >= self._sweep_at:
            self._sweep_at = time.monotonic() + _SWEEP_EVERY
            self._tasks.spawn(self._swept())

    async def close(self) -> None:
        await self._tasks.close(end_within=_CUT_WITHIN)

    async def _swept(self) -> None:
        try:
            await self._threads.run(self._store.sweep)
        except OSError as error:  # a later sweep repeats it
            _log.warning("what dead gateways have left of checkpoints cannot be deleted: %s", error)
        except Exception:
            _log.exception("the sweep of checkpoints failed in an unexpected way")


def _retrieved(work: asyncio.Future[Mapping[str, int]]) -> None:
    """Take note of how a measurement ended for which nobody waited that long."""
    if not work.cancelled():
        work.exception()
