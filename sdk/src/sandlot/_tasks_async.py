"""Asyncio helpers: a clock, shielded tasks, bounded batches, and per-loop clients that are closed with the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from sandlot._protocol import checks
from sandlot.models import Progress

Item = TypeVar("Item")
Result = TypeVar("Result")

ABANDONED: tuple[type[BaseException], ...] = (asyncio.CancelledError, KeyboardInterrupt)
Lock = asyncio.Lock
now = time.monotonic
sleep = asyncio.sleep

_owned: set[asyncio.Task[Any]] = set()
_scopes: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Any, Any]] = WeakKeyDictionary()


async def shielded(work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Complete `work` even if the caller is cancelled (again) meanwhile. `work` must be bounded."""
    task = asyncio.ensure_future(work())
    _owned.add(task)
    task.add_done_callback(_owned.discard)
    await asyncio.shield(task)


async def acquire(lock: Lock, *, within: float) -> bool:
    """Acquire a lock, or return False after `within` seconds."""
    try:
        async with asyncio.timeout(within):
            return await lock.acquire()
    except TimeoutError:
        return False


async def run_blocking(function: Callable[[], Result]) -> Result:
    """Run a blocking function in a thread."""
    return await asyncio.to_thread(function)


def settle(future: asyncio.Future[None]) -> None:
    """Set the future's result, unless it is done."""
    if not future.done():
        future.set_result(None)


def scope() -> dict[Any, Any]:
    """Return the objects of the running event loop; a client works only in its own loop."""
    loop = asyncio.get_running_loop()
    found = _scopes.get(loop)
    if found is None:
        found = _scopes[loop] = {}
    return found


async def close_at_end(close: Callable[[], Awaitable[None]]) -> None:
    """Call `close` when the running loop shuts down, as `asyncio.run` does before it returns."""
    guard = _guard(close)
    await guard.__anext__()
    scope()[guard] = guard  # if garbage-collected, the generator would close at once


async def _guard(close: Callable[[], Awaitable[None]]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await close()


async def each(
    function: Callable[[Item], Awaitable[Result]],
    items: Iterable[Item],
    *,
    concurrency: int,
    return_exceptions: bool,
    progress: Callable[[Progress], None] | None,
) -> list[Any]:
    """Call `function` with every item, at most `concurrency` at once; return results in the order of the items."""
    todo = list(items)
    limit = min(checks.concurrency(concurrency), len(todo))
    results: list[Any] = [None] * len(todo)
    pending = iter(enumerate(todo))
    done = failed = running = 0

    def report() -> None:
        if progress is not None:
            progress(Progress(done=done, failed=failed, running=running, total=len(todo)))

    def is_cancelled() -> bool:
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0

    async def worker() -> None:
        nonlocal done, failed, running
        for index, item in pending:
            running += 1
            try:
                results[index] = await function(item)
            except asyncio.CancelledError as error:
                if is_cancelled():
                    raise
                failed += 1
                if not return_exceptions:
                    # A task group ignores a cancelled task, as if it had succeeded.
                    raise _Cancelled from error
                results[index] = error
            except Exception as error:
                failed += 1
                if not return_exceptions:
                    raise
                results[index] = error
            finally:
                running -= 1
            done += 1
            report()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(limit):
                group.create_task(worker())
    except BaseExceptionGroup as errors:
        first = errors.exceptions[0]  # the workers raise no exception groups
        raise asyncio.CancelledError if isinstance(first, _Cancelled) else first from None
    return results


class _Cancelled(Exception):
    """The call for an item was cancelled, but not the batch."""
