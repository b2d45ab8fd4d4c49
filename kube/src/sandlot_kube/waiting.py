"""Waiting for an event with a timeout."""

from __future__ import annotations

import asyncio


async def wait_set(event: asyncio.Event, *, seconds: float | None) -> None:
    """Wait until the event is set, at most `seconds`. (In Python 3.11, asyncio.wait_for can swallow a cancellation.)"""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
