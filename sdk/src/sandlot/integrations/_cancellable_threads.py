"""Runs the SDK's blocking calls in threads that end, and clean up, when their asyncio caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from sandlot._cancel_sync import Cancellation

Result = TypeVar("Result")


async def in_cancellable_thread(
    function: Callable[[], Result], *, discard: Callable[[Result], object] | None = None
) -> Result:
    """Return `function()` of a thread. A cancelled caller interrupts its SDK call and waits for the clean-up.

    `discard` gets, in a thread, a result that comes too late for a cancelled caller.
    """
    cancellation = Cancellation()

    def call() -> Result:
        with cancellation:
            return function()

    running = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        cancellation.cancel()
        await asyncio.wait((running,))
        if not running.cancelled() and running.exception() is None and discard is not None:
            await asyncio.shield(asyncio.to_thread(discard, running.result()))
        raise
