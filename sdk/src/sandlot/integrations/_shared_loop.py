"""One event loop of the process for the SDK's calls: frameworks that have a loop for each thread share its connections."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")

LAST_SECONDS = 15.0  # for the clean-up of calls that are still running when the process ends

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


async def on_shared_loop(
    work: Callable[[], Coroutine[Any, Any, Result]],
    *,
    discard: Callable[[Result], Coroutine[Any, Any, object]] | None = None,
    to_the_end: bool = False,
) -> Result:
    """Run `work()` on the process's loop. A cancelled caller cancels it and waits until it has cleaned up.

    `discard` gets a result that comes too late for a cancelled caller. With `to_the_end` the work is not cancelled.
    """
    loop = _shared_loop()
    started: list[asyncio.Task[Result]] = []
    finished: Future[asyncio.Task[Result]] = Future()
    context = contextvars.copy_context()  # traces find their parent in it

    def begin() -> None:
        task = loop.create_task(work(), context=context)
        started.append(task)
        task.add_done_callback(finished.set_result)

    async def clean_up() -> None:
        (task,) = started  # `begin` was called before
        if not to_the_end:
            task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled() and task.exception() is None and discard is not None:
            try:
                await discard(task.result())
            except Exception as error:  # would take the place of the caller's cancellation
                _log.warning("could not clean up after a cancelled call: %s", error)

    loop.call_soon_threadsafe(begin)
    try:
        task = await asyncio.shield(asyncio.wrap_future(finished))
    except asyncio.CancelledError:
        cleaned = asyncio.run_coroutine_threadsafe(clean_up(), loop)
        await asyncio.shield(asyncio.wrap_future(cleaned))
        raise
    return task.result()


def _shared_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of this process, which a thread runs; a forked child gets one of its own."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="sandlot-calls", daemon=True)
            thread.start()
            atexit.register(_end, loop, thread, os.getpid())
    return loop


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, pid: int) -> None:
    """End calls, close connections and stop the loop, as `asyncio.run` does with its own."""
    if pid != os.getpid():
        return  # the loop's thread is in the process that forked this one

    async def last() -> None:
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await loop.shutdown_asyncgens()

    with contextlib.suppress(TimeoutError):
        asyncio.run_coroutine_threadsafe(last(), loop).result(timeout=LAST_SECONDS)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(timeout=LAST_SECONDS)
    if not thread.is_alive():
        loop.close()
