"""Tasks whose owner outlives them: kept until they end, awaited when the owner closes."""

from __future__ import annotations

import asyncio

from . import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any, TypeVar

    Result = TypeVar("Result")


class Tasks:
    """Keeps references, since the event loop keeps none and reports failures too late."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Start a task whose failure is logged."""
        return self._keep(work, self._done)

    def spawn_quiet(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Start a task whose failure is handled elsewhere, or harmless."""
        return self._keep(work, self._done_quietly)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def wait(self, *, timeout: float | None = None) -> None:
        """Wait for the current tasks, for at most `timeout` seconds."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=timeout)

    def _keep(
        self, work: Coroutine[Any, Any, Result], done: Callable[[asyncio.Task[Any]], object]
    ) -> asyncio.Task[Result]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        if (error := self._done_quietly(task)) is not None:
            log.failure("task_failed", error)

    def _done_quietly(self, task: asyncio.Task[Any]) -> BaseException | None:
        """Return a task's exception and mark it as retrieved."""
        self._tasks.discard(task)
        return None if task.cancelled() else task.exception()


async def beside(*works: Callable[[], None]) -> None:
    """For `gather`: what is done at once while the coroutines before it wait."""
    for work in works:
        work()
