"""Tells whether a client has left: now, without waiting and without a task, or while its answer is held."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

from sandlot_gateway.data.answers import Receive
from sandlot_gateway.data.disconnects import ReadAhead, cancel_on_disconnect
from sandlot_gateway.data.errors import ClientGone


def has_hung_up(receive: Callable[[], Awaitable[MutableMapping[str, Any]]]) -> bool:
    """Return whether the client has disconnected, for a request whose body has been read.

    Starlette's `is_disconnected` cancels a scope for it, which takes longer than the claim of a sandbox.
    """

    async def message() -> MutableMapping[str, Any]:
        return await receive()

    asked = message()
    try:
        asked.send(None)
    except StopIteration as told:
        return told.value["type"] == "http.disconnect"
    finally:
        asked.close()
    return False


async def unless_left(waiting: Coroutine[Any, Any, bool], receive: Receive) -> bool:
    """Return what `waiting` returns, or False as soon as the client disconnects; its request's body has been read."""
    try:
        return await cancel_on_disconnect(waiting, ReadAhead(receive), more=False, undo=lambda _: None)
    except ClientGone:
        return False
