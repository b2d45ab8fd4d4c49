"""The local backend's tasks and threads: which ones its stop waits for and which it cancels."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from .threads import DaemonThreads

log = logging.getLogger(__name__)
T = TypeVar("T")


class Background:
    def __init__(self) -> None:
        self.closing = False  # the gateway is stopping and starts nothing
        self._threads = DaemonThreads(8, name="sandlot-local")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._removals: set[asyncio.Task[Any]] = set()

    def in_thread(self, function: Callable[..., T], *arguments: Any) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start a task that the backend's stop cancels."""
        return self._own(self._tasks, work, name)

    def spawn_removal(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start a task that the backend's stop waits for."""
        return self._own(self._removals, work, name)

    async def cancel_tasks(self) -> None:
        """Cancel all tasks but removals."""
        await _cancel(self._tasks)

    async def removed(self, *, timeout: float) -> bool:
        """Wait up to `timeout` seconds for all removals, also those that begin meanwhile; return whether none is left."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        while self._removals and loop.time() < until:
            await asyncio.wait(set(self._removals), timeout=until - loop.time())
        return not self._removals

    async def close(self, *, timeout: float) -> bool:
        """Cancel the removals that are left, and let calls in threads end for up to `timeout` seconds.

        Return whether all have ended.
        """
        await _cancel(self._removals)
        if stuck := await self._threads.close(timeout=timeout):
            log.warning("gave up %d calls that remove or start instances and do not end", stuck)
        return not stuck

    def _own(self, tasks: set[asyncio.Task[Any]], work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=name)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(_log_failure)
        return task


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    own = [task for task in tasks if task is not asyncio.current_task()]
    for task in own:
        task.cancel()
    await asyncio.gather(*own, return_exceptions=True)


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.debug("%s: %s", task.get_name(), error)
