"""Runs the SDK's blocking calls in threads that end, and clean up, when their asyncio caller is cancelled."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from sandlot._cancel_sync import Cancellation

Result = TypeVar("Result")

_log = logging.getLogger(__name__)


async def in_cancellable_thread(
    function: Callable[[], Result], *, discard: Callable[[Result], object] | None = None
) -> Result:
    """Return `function()` of a thread. A cancelled caller interrupts its SDK call and waits for the clean-up.

    `discard` gets, in a thread, a result that comes too late for a cancelled caller; its errors are logged.
    """
    cancellation = Cancellation()
    lock = threading.Lock()
    abandoned = False
    results: list[Result] = []

    def call() -> Result:
        with cancellation:
            result = function()
        with lock:
            results.append(result)
            late = abandoned
        if late:  # here, since a caller that is cancelled twice does not wait, and its loop may end
            discarded()
        return result

    def discarded() -> None:
        if discard is None:
            return
        try:
            discard(results[0])
        except Exception as error:  # would take the place of the caller's cancellation
            _log.warning("could not clean up after a cancelled call: %s", error)

    running = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        cancellation.cancel()
        with lock:
            abandoned = True
            finished = bool(results)
        if finished:
            await asyncio.shield(asyncio.to_thread(discarded))
        else:
            await asyncio.wait((running,))
            if not running.cancelled():
                running.exception()  # retrieved, so that asyncio does not log it
        raise
