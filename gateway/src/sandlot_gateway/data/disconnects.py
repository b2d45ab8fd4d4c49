"""Detects that the client disconnected before its request was sent to an upstream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from .answers import Message, Receive
from .errors import ClientGone

# A task per request would cost a tenth of the gateway's throughput, so a request gets one only after this many
# seconds; a client that leaves earlier is noticed at the end of its request.
PATIENCE = 0.01

Got = TypeVar("Got")


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client disconnects; for a request whose body has been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class ReadAhead:
    """An ASGI `receive` that allows a look at the next message before it is consumed."""

    __slots__ = ("_held", "_receive")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._held: Message | None = None

    async def __call__(self) -> Message:
        if self._held is not None:
            held, self._held = self._held, None
            return held
        return await self._receive()

    async def look(self) -> Message:
        if self._held is None:
            self._held = await self._receive()
        return self._held


async def cancel_on_disconnect(
    getting: Coroutine[Any, Any, Got], receive: ReadAhead, *, more: bool, undo: Callable[[Got], None]
) -> Got:
    """Return the result of `getting`, or raise ClientGone if the client leaves first; `undo` releases a late result.

    `more`: a part of the request's body is still to come. A client that has sent a piece is then no longer watched:
    the piece after it would have to be buffered, too.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(getting)
    leaving: asyncio.Task[None] | None = None
    try:
        await asyncio.wait({task}, timeout=PATIENCE)
        if not task.done():
            leaving = loop.create_task(_left(receive, more=more))
            await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                leaving.result()
                raise ClientGone
        return task.result()
    except BaseException:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled() and task.exception() is None:
            undo(task.result())
        raise
    finally:
        if leaving is not None:
            leaving.cancel()
            await asyncio.wait({leaving})


async def _left(receive: ReadAhead, *, more: bool) -> None:
    if not more:
        await wait_for_disconnect(receive)
    elif (await receive.look())["type"] != "http.disconnect":
        await asyncio.get_running_loop().create_future()  # until it is cancelled
