"""Returns a used instance to its pool after a reset that its sidecar proved equal to fresh."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sandlot_contract.ids import InstanceId

from ...core.instances import Instance
from ...data.pool import HttpPool, PoolError
from .background import Background
from .entries import Entry
from .keeper import PoolKeeper
from .sidecar_calls import post

log = logging.getLogger(__name__)


class Resetter:
    def __init__(
        self,
        entries: dict[InstanceId, Entry],
        *,
        background: Background,
        keeper: PoolKeeper,
        pool: HttpPool,
        max_resets: int,
        is_ending: Callable[[InstanceId], bool],
    ) -> None:
        """`max_resets`: how often to reuse an instance. `is_ending`: whether its sidecar has not reported ready yet."""
        self._entries = entries
        self._background = background
        self._keeper = keeper
        self._pool = pool
        self._max_resets = max_resets
        self._is_ending = is_ending

    async def recycle(self, instance: Instance, *, generation: int) -> bool:
        """Reset an instance, see `Backend.recycle`."""
        entry = self._entries.get(instance.id)
        if entry is None or entry.leaving is not None or entry.exited.is_set() or self._background.closing:
            return False
        if entry.record.resets >= self._max_resets:
            return False
        planner = self._keeper.planner
        now = asyncio.get_running_loop().time()
        name = planner.wants(instance.template.key, now=now, warm=self._keeper.warm())
        if name is None:
            return False
        planner.began(name, instance.id)
        entry.began = now
        done = await self._reset(entry, name, generation=generation)
        if not done:
            planner.gone(instance.id)
        return done

    async def _reset(self, entry: Entry, pool: str, *, generation: int) -> bool:
        instance, record = entry.instance, entry.record
        instance.pool = record.pool = pool
        record.resets += 1
        try:
            await self._background.in_thread(record.save, entry.directory.record)
            body = b'{"keep_claim":false,"generation":%d}' % generation
            answer = await post(self._pool, entry, "/v1/reset", body, timeout=10.0)
            state = answer.json()
        except (PoolError, OSError) as error:
            log.warning("instance %s: no answer to its reset: %s", instance.id, error)
            # Its `ready` may have come all the same, and it may have an owner already.
            return not self._is_ending(instance.id)
        if answer.status != 200 or not isinstance(state, dict) or state.get("equal") is not True:
            why = state.get("proof") or state.get("message") if isinstance(state, dict) else answer.status
            log.warning("instance %s: not equal to fresh after a reset: %s", instance.id, why)
            return False
        return True
