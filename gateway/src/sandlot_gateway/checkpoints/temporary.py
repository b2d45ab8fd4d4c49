"""Checkpoints of the gateway's own, which last only until the sandboxes that begin with them run.

Each has a time at which any gateway deletes it, so that one that dies leaves none for long.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.checkpoints.service import Checkpoints
from sandlot_gateway.tasks import Tasks

_log = logging.getLogger(__name__)

_LOOK_EVERY = 3600.0  # seconds between looks at what expires later, or at a volume that cannot be read
_CLOSING = 1.0  # seconds


@dataclass(eq=False)
class Use:
    """How this gateway's requests use one checkpoint."""

    requests: int = 0
    own: Checkpoint | None = None  # if this gateway began it
    # For a check and what follows from it: else one could be deleted after a request has found it.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Temporary:
    """Only the gateway that began a checkpoint deletes it before it expires: others do not know who still reads it."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._uses: dict[str, Use] = {}
        self._tasks = Tasks()
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to delete what gateways that died have left, once it expires."""
        self._looking = asyncio.get_running_loop().create_task(self._look())

    def hold(self, checkpoint_id: str) -> Use:
        """Keep a checkpoint, which need not have begun, until as many calls of `release`."""
        use = self._uses.setdefault(checkpoint_id, Use())
        use.requests += 1
        return use

    def release(self, checkpoint_id: str, *, after: Callable[[], Awaitable[bool]] | None = None) -> None:
        """Delete a checkpoint that this gateway began and no request here holds any more, in the background.

        `after` is called before, and returns False if another gateway may still need the checkpoint.
        """
        self._tasks.spawn(self._release(checkpoint_id, after))

    def delete(self, checkpoint: Checkpoint) -> None:
        """Delete a checkpoint that only one request has used, in the background."""
        self._tasks.spawn(self._delete(checkpoint))

    async def _release(self, checkpoint_id: str, after: Callable[[], Awaitable[bool]] | None) -> None:
        use = self._uses[checkpoint_id]
        is_over = False
        try:
            is_over = after is None or await after()
        finally:
            use.requests -= 1
        async with use.lock:
            if use.requests or self._uses.get(checkpoint_id) is not use:
                return
            try:
                if is_over and use.own is not None:
                    await self._delete(use.own)
                    use.own = None
            finally:
                if not use.requests:
                    del self._uses[checkpoint_id]

    async def _delete(self, checkpoint: Checkpoint) -> None:
        try:
            await self._checkpoints.delete(checkpoint)
        except OSError as error:
            _log.warning("the checkpoint %s of a fork is deleted later: %s", checkpoint.id, error)

    async def _look(self) -> None:
        while True:
            try:
                soonest = await self._checkpoints.expire()
            except OSError as error:
                _log.warning("cannot look for checkpoints that have expired: %s", error)
                soonest = float("inf")
            except Exception:  # it must not end all later looks
                _log.exception("cannot look for checkpoints that have expired")
                soonest = float("inf")
            wait = soonest - time.time() if soonest is not None else _LOOK_EVERY
            await asyncio.sleep(min(max(wait, 1.0), _LOOK_EVERY))

    async def close(self) -> None:
        """Stop; checkpoints that are still held go when they expire."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        await self._tasks.close(timeout=0.0, end_within=_CLOSING)


def temporary(checkpoints: Checkpoints | None) -> Temporary | None:
    return None if checkpoints is None else Temporary(checkpoints)
