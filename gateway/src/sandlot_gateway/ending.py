"""Ends a gateway in order: it is asked to, serves on while clients leave, then lets requests in flight end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from sandlot_gateway.app import Gateway
from sandlot_gateway.stop_times import HURRIED, IN_ORDER, StopTimes
from sandlot_gateway.tasks import Tasks
from sandlot_gateway.uvicorn_server import Server

_log = logging.getLogger(__name__)

LAST_ANSWERS = 2  # seconds for requests to be answered after the drain


class EndRequests:
    """Whether the gateway is to end (`begun`), and whether no wait may hold that up any more (`hurry`)."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.hurry = asyncio.Event()

    def begin(self) -> None:
        """Begin the end, whatever the cause; a second call is harmless."""
        self.begun.set()

    def ask(self) -> None:
        """Handle a signal: the first begins the end, and one that comes while it is under way hurries it."""
        if self.begun.is_set():
            self.hurry.set()
        self.begin()


async def until_end(requests: EndRequests, *, gateway: Gateway, idle: float | None) -> None:
    """Wait until asked to stop, or until there was neither sandbox nor request for `idle` seconds."""
    if idle is None:
        await requests.begun.wait()
        return
    left = idle
    while left > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await requests.begun.wait()
                return
        if gateway.edge.in_flight or gateway.directory.total_live:
            left = idle
        else:
            left = idle - (time.monotonic() - max(gateway.edge.last_use, gateway.directory.last_end))
    _log.info("stopping: no sandbox or request for %g s", idle)
    requests.begin()


async def started(work: Coroutine[Any, Any, None], *, hurry: asyncio.Event) -> bool:
    """Start the gateway by `work`; return False if a second signal came first."""
    if await _is_done_before(hurry, work):
        return True
    _log.warning("asked again to end: the start is given up")
    return False


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
        server.force_exit = True  # or it waits for its connections to close
        await drained(0.0)


async def stop(
    stopped: Callable[[StopTimes], Coroutine[Any, Any, None]], *, server: Server, hurry: asyncio.Event
) -> None:
    """Stop what `stopped` stops, in order, or with little time once `hurry` is set."""
    if not hurry.is_set():
        if await _is_done_before(hurry, stopped(IN_ORDER)):
            return
        _log.warning("asked again to end: what is not cleaned up or written in a moment is given up")
    server.force_exit = True
    await stopped(HURRIED)


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
