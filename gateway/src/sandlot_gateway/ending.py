"""Ends a gateway in order: it is asked to, serves on while clients leave, then lets requests in flight end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any

from sandlot_gateway.app import Gateway
from sandlot_gateway.tasks import Tasks
from sandlot_gateway.uvicorn_server import Server

_log = logging.getLogger(__name__)

# The docs promise an end 30 s after the drain: these, 5 s for connections over TLS, and 11 s for the backend.
LAST_ANSWERS = 2  # seconds for requests to be answered after the drain
STOP = 10.0  # seconds for the cleanups of sandboxes that have ended
HURRIED_STOP = 1.0  # the same after a second signal


async def until_end(ending: asyncio.Event, *, gateway: Gateway, idle: float | None) -> None:
    """Wait until asked to stop, or until there was neither sandbox nor request for `idle` seconds."""
    if idle is None:
        await ending.wait()
        return
    left = idle
    while left > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await ending.wait()
                return
        if gateway.edge.in_flight or gateway.directory.total_live:
            left = idle
        else:
            left = idle - (time.monotonic() - max(gateway.edge.last_use, gateway.directory.last_end))
    _log.info("stopping: no sandbox or request for %g s", idle)


async def leave(gateway: Gateway, server: Server, *, seconds: float, hurry: asyncio.Event) -> None:
    """Keep serving while load balancers see that this gateway is not ready, and clients close their connections."""
    if not seconds:
        return
    _log.info("not ready; serving on for %g s before shutdown", seconds)
    gateway.leave()
    server.end_connections()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await hurry.wait()


async def drain(gateway: Gateway, server: Server, *, seconds: float, hurry: asyncio.Event) -> None:
    """Let requests in flight end; after `seconds`, or once `hurry` is set, cut them."""
    _log.info("ending")
    server.drain_connections()

    async def drained(seconds: float) -> None:
        by = asyncio.get_running_loop().time() + seconds + LAST_ANSWERS
        await gateway.drain(seconds, settled=partial(server.close, by=by))

    if not await _is_done_before(hurry, drained(seconds)):
        _log.warning("asked again to end: the requests in flight and pending creates are given up")
        await drained(0.0)


async def _is_done_before(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do the work, or cancel it once the event is set; return whether it is done."""
    tasks = Tasks()
    doing, waiting = tasks.spawn(work), tasks.spawn(event.wait())
    try:
        await asyncio.wait([doing, waiting], return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            await doing  # raises its error
        return doing.done()
    finally:
        await tasks.close()
