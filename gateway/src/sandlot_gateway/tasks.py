"""Owns background tasks, and awaits them at shutdown."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """As asyncio.to_thread, but a cancel waits for the thread: else it would go on with files that are closed then."""
    return await to_its_end(asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs)))


async def to_its_end(work: asyncio.Future[T]) -> T:
    """Return what a thread's call returns; a cancel waits for it."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with contextlib.suppress(asyncio.CancelledError):  # another cancel
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # retrieved: the cancel is what the caller learns
        raise


class Tasks:
    """A set of tasks, which must handle their own errors; `close` leaves none behind."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self, *, timeout: float = 0.0, end_within: float | None = None) -> int:
        """Wait up to `timeout` seconds, then cancel the remaining tasks and await them; return their number.

        Those that have not ended `end_within` seconds after the cancel are left: a thread cannot be cancelled.
        """
        if self._tasks and timeout > 0:
            await asyncio.wait(set(self._tasks), timeout=timeout)
        left = list(self._tasks)
        for task in left:
            task.cancel()
        ended = asyncio.gather(*left, return_exceptions=True)
        if end_within is None:
            await ended
        else:
            await asyncio.wait([ended], timeout=end_within)
        return len(left)
