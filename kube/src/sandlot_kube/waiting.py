"""A wait for an event that has an end."""

from __future__ import annotations

import asyncio


async def wait_set(event: asyncio.Event, *, seconds: float | None) -> None:
    """Until it is set, `seconds` at most. (In Python 3.11 asyncio.wait_for can swallow a cancellation here.)"""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
