"""The local backend's tasks and threads: which ones `close` waits for and which it cancels."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")


class Background:
    def __init__(self) -> None:
        self.closing = False  # the gateway is stopping and starts nothing
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="sandlot-local")
        self._tasks: set[asyncio.Task[Any]] = set()

    def in_thread(self, function: Callable[..., T], *arguments: Any) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start a task. At the end tasks named `destroy…` finish; all others are cancelled."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    async def close_tasks(self) -> None:
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            # Removals in progress finish, which takes a moment; all other tasks end here.
            if not task.get_name().startswith("destroy"):
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close_threads(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("%s: %s", task.get_name(), error)
