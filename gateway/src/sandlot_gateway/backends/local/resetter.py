"""Returns a used instance to a pool, for its tenant, after a reset that its sidecar proved equal to fresh."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from sandlot_contract.ids import InstanceId

from ...core.instances import Instance
from ...data.pool import HttpPool
from ...resets import ResetOutcome, reset_for_next_owner
from .background import Background
from .entries import Entry
from .keeper import PoolKeeper

log = logging.getLogger(__name__)


class Resetter:
    def __init__(
        self,
        entries: dict[InstanceId, Entry],
        *,
        background: Background,
        keeper: PoolKeeper,
        pool: HttpPool,
        is_ending: Callable[[InstanceId], bool],
    ) -> None:
        """`is_ending`: whether the instance's sidecar has not reported ready yet."""
        self._entries = entries
        self._background = background
        self._keeper = keeper
        self._pool = pool
        self._is_ending = is_ending

    async def recycle(
        self, instance: Instance, *, generation: int, tenant: str, pools: Collection[str]
    ) -> bool:
        """Reset an instance, see `Backend.recycle`."""
        entry = self._entries.get(instance.id)
        if entry is None or entry.leaving is not None or entry.exited.is_set() or self._background.closing:
            return False
        planner = self._keeper.planner
        now = asyncio.get_running_loop().time()
        name = planner.wants(pools, now=now, warm=self._keeper.warm())
        if name is None:
            return False
        planner.reset_began(name, instance.id, tenant)
        entry.began = now
        done = await self._reset(entry, name, generation=generation)
        if not done:
            planner.gone(instance.id)
        return done

    async def _reset(self, entry: Entry, pool: str, *, generation: int) -> bool:
        instance, record = entry.instance, entry.record
        instance.pool = record.pool = pool
        record.template = replace(instance.template, image=instance.image or instance.template.image)
        try:
            await self._background.in_thread(record.save, entry.directory.record)
        except OSError as error:
            log.warning("instance %s: its record cannot be written: %s", instance.id, error)
            return False
        reset = await reset_for_next_owner(self._pool, instance, generation=generation)
        if reset.outcome is ResetOutcome.UNANSWERED:
            # Its `ready` may have come all the same, and it may have an owner already.
            return not self._is_ending(instance.id)
        return reset.outcome is ResetOutcome.PROVEN
