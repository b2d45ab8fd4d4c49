"""Checkpoints of the gateway's own, which last only until the sandboxes that begin with them run.

Each has a time at which any gateway deletes it, so that one that dies leaves none for long.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from sandlot_gateway.checkpoints.service import Checkpoints
from sandlot_gateway.tasks import Tasks

_log = logging.getLogger(__name__)

_LOOK_EVERY = 3600.0  # seconds between looks at what expires later, or at a volume that cannot be read
_CLOSING = 1.0  # seconds


class Temporary:
    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._holders: Counter[str] = Counter()  # requests that use a checkpoint, by its id
        self._tasks = Tasks()
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to delete what gateways that died have left, once it expires."""
        self._looking = asyncio.get_running_loop().create_task(self._look())

    def hold(self, checkpoint_id: str) -> None:
        """Keep a checkpoint until as many calls of `release`."""
        self._holders[checkpoint_id] += 1

    def release(
        self, checkpoint_id: str, tenant: str, *, after: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        """Delete a checkpoint that nobody holds any more, in the background.

        `after` is called before, and returns False if another gateway may still need the checkpoint.
        """
        self._tasks.spawn(self._release(checkpoint_id, tenant, after))

    async def _release(
        self, checkpoint_id: str, tenant: str, after: Callable[[], Awaitable[bool]] | None
    ) -> None:
        is_over = False
        try:
            is_over = after is None or await after()
        finally:
            self._holders[checkpoint_id] -= 1
            is_last = self._holders[checkpoint_id] <= 0
            if is_last:
                del self._holders[checkpoint_id]
        if is_over and is_last:
            await self._delete(checkpoint_id, tenant)

    async def _delete(self, checkpoint_id: str, tenant: str) -> None:
        try:
            found = await self._checkpoints.get(tenant, checkpoint_id)
            if found is not None and found.expires_at is not None and not self._holders[checkpoint_id]:
                await self._checkpoints.delete(found)
        except OSError as error:
            _log.warning("the checkpoint %s of a fork is deleted later: %s", checkpoint_id, error)

    async def _look(self) -> None:
        while True:
            try:
                soonest = await self._checkpoints.expire()
            except OSError as error:
                _log.warning("cannot look for checkpoints that have expired: %s", error)
                soonest = float("inf")
            if soonest is None:
                return
            await asyncio.sleep(min(max(soonest - time.time(), 1.0), _LOOK_EVERY))

    async def close(self) -> None:
        """Stop; checkpoints that are still held go when they expire."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        await self._tasks.close(timeout=0.0, end_within=_CLOSING)


def temporary(checkpoints: Checkpoints | None) -> Temporary | None:
    return None if checkpoints is None else Temporary(checkpoints)
