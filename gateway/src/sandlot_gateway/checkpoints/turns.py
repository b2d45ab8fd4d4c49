"""Lets one caller after another use the store for a step that nothing may come between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandlot_gateway.checkpoints.errors import StoreError

_WITHIN = 60.0  # seconds


@asynccontextmanager
async def in_turn(lock: asyncio.Lock) -> AsyncIterator[None]:
    """Have the lock for the block. Raises StoreError after a minute: where a store does not answer, all others wait, too.

    Of a directory as well: a volume may stall.
    """
    try:
        async with asyncio.timeout(_WITHIN):
            await lock.acquire()
    except TimeoutError:
        raise StoreError("the store of checkpoints is too slow for all that wait for it: try again") from None
    try:
        yield
    finally:
        lock.release()
