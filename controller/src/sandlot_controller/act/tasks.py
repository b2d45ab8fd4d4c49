"""Background tasks whose owner waits for them when it closes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

_log = logging.getLogger(__name__)


class Tasks:
    """Runs at most one task per key at a time; `close` leaves none behind."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, key: str) -> bool:
        return key in self._tasks

    def spawn(
        self, key: str, work: Coroutine[Any, Any, None], *, then: Callable[[], None] | None = None
    ) -> bool:
        """Start a task; return False while one with this key runs, and after `close`, as a watch may tell news after it.

        `then` is called when the key is free again.
        """
        if self._closed or key in self._tasks:
            work.close()
            return False
        task = asyncio.get_running_loop().create_task(work, name=key)
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._done(key, done))
        if then is not None:
            task.add_done_callback(lambda _: then())
        return True

    async def wait(self, *, seconds: float) -> None:
        """Wait for the current tasks, at most `seconds`."""
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=seconds)

    async def close(self) -> None:
        """Cancel all tasks and wait for them."""
        self._closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, key: str, task: asyncio.Task[None]) -> None:
        del self._tasks[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed", key, exc_info=error)
