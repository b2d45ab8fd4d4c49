"""The search for what a gateway had claimed last before it died: only the sidecars know."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from typing import Any

from ...tasks import Tasks

_log = logging.getLogger(__name__)

# Seconds after its end, twice as long after each repeat: a gateway may have come back since, claimed, and died again.
_COUNTS, _LONGEST = 5.0, 60.0

Look = Callable[[], Coroutine[Any, Any, None]]


class Search:
    """Begins with the first question, and outlives it: a sidecar that is slower than a question would never be heard.

    `repeats`: the gateway may come back, so that a search does not count for long, but longer each time: one that crashes
    again and again would have all sidecars polled all the time.
    """

    def __init__(self, tasks: Tasks, *, repeats: bool) -> None:
        self._tasks = tasks
        self._repeats = repeats
        self._task: asyncio.Task[None] | None = None
        self._over_at = math.inf  # on the loop's clock
        self._counts = _COUNTS

    @property
    def has_ended(self) -> bool:
        """Whether it is over, however long ago."""
        return self._task is not None and self._task.done()

    @property
    def is_under_way(self) -> bool:
        return self._task is not None and not self._task.done()

    def outdate(self) -> None:
        """End it, and have the next question begin another: a gateway has begun that may have claimed since it began."""
        self.end()
        self._task, self._over_at, self._counts = None, math.inf, _COUNTS

    def end(self) -> None:
        """Give up what nobody waits for any more."""
        if self._task is not None:
            self._task.cancel()

    async def is_over(self, look: Look, *, timeout: float) -> bool:
        """Return whether it has come to its end, within `timeout` seconds."""
        loop = asyncio.get_running_loop()
        is_old = self._repeats and loop.time() > self._over_at + self._counts
        if is_old:
            self._counts = min(2 * self._counts, _LONGEST)
        if self._task is None or is_old:
            self._over_at = math.inf
            self._task = self._tasks.spawn(self._look(look))
        task = self._task
        await asyncio.wait([task], timeout=timeout)
        return task.done() and not task.cancelled() and self._task is task

    async def _look(self, look: Look) -> None:
        try:
            await look()
        except Exception:
            _log.exception("the search for a dead gateway's claims failed; the next question begins another")
            if self._task is asyncio.current_task():
                self._task = None
            return
        if self._task is asyncio.current_task():  # else it is outdated
            self._over_at = asyncio.get_running_loop().time()
