"""The search for what a gateway had claimed last before it died: only the sidecars know."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from typing import Any

from ...tasks import Tasks

_log = logging.getLogger(__name__)

_COUNTS = 5.0  # seconds after its end; a gateway may have come back since, claimed, and died again

Look = Callable[[], Coroutine[Any, Any, None]]


class Search:
    """Begins with the first question, and outlives it: a sidecar that is slower than a question would never be heard.

    `repeats`: the gateway may come back, so that a search does not count for long.
    """

    def __init__(self, tasks: Tasks, *, repeats: bool) -> None:
        self._tasks = tasks
        self._repeats = repeats
        self._task: asyncio.Task[None] | None = None
        self._over_at = math.inf  # on the loop's clock

    async def is_over(self, look: Look, *, timeout: float) -> bool:
        """Return whether it has come to its end, within `timeout` seconds."""
        loop = asyncio.get_running_loop()
        if self._task is None or (self._repeats and loop.time() > self._over_at + _COUNTS):
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
            self._task = None
        else:
            self._over_at = asyncio.get_running_loop().time()
