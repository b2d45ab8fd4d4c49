"""Follows files that change while a program runs, such as those of a mounted Secret."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_PAUSE = 1.0  # seconds between two reads


async def follow(read: Callable[[], T], use: Callable[[T], Awaitable[None]], *, used: T) -> None:
    """Call `use` with what `read` returns each time that it differs from the last, `used` at first; until cancelled.

    Polling detects a write in place, a rename and the swap of a mounted Secret alike.
    """
    before = used
    while True:
        await asyncio.sleep(_PAUSE)
        found = await asyncio.to_thread(read)
        # A file being written must not be used half: two reads have to agree.
        if found == before and found != used:
            used = found
            await use(found)
        before = found
