# This file is auto-generated from sdk/src/sandlot/_async/reconnects.py by tools/async_to_sync.py: do not change it.
"""Reads a stream that goes on for as long as its command or watch, and says when its connection was lost."""

from __future__ import annotations

from collections.abc import Callable

from sandlot._protocol.messages import TransportError
from sandlot._protocol.retry import Failure, Retry
from sandlot._tasks_sync import now, sleep
from sandlot._transport_sync.body import Body
from sandlot.errors import ConnectionFailed

SILENCE = 45.0  # seconds without even a keep-alive (sent every 15) before the connection counts as dead


def received(body: Body, retry: Retry, *, of: str, lost: Callable[[], None]) -> bytes | None:
    """Return what came next; None when the connection was lost and it is time to open another one.

    `of` is what the stream ends with, for the error's text; `lost` is called as soon as the connection is closed.
    Raises ConnectionFailed.
    """
    begun = now()
    try:
        data = body.read(timeout=SILENCE)
        if not data:
            raise TransportError(f"the stream stopped before the end of the {of}", sent=True)
    except TransportError as error:
        body.close()
        lost()
        delay = retry.after(Failure(sent=True), now=now())
        if delay is None:
            raise ConnectionFailed(str(error), sent=True) from error
        sleep(delay if now() - begun < 1 else 0.0)
        return None
    retry.progress()
    return data
