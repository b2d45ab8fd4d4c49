"""Tells whether a client has left, without waiting and without a task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any


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
