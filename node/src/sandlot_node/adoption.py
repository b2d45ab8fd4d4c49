"""Starts the agent's work on what an earlier agent left, as soon as containerd answers for all of it."""

from __future__ import annotations

import asyncio
import logging
import time

from .failures import ImageError, Kind
from .preparer import Preparer

_log = logging.getLogger(__name__)

_PAUSE = 1.0
_TELL_EVERY = 10.0  # seconds between two lines of the log


async def adopt(preparer: Preparer, *, seconds: float, pause: float = _PAUSE) -> None:
    """Start a preparer, again for `seconds` while containerd is away. Raises ImageError.

    Meanwhile the agent must not serve: an incomplete list of images would be taken for the whole one.
    """
    deadline = time.monotonic() + seconds
    tell_at = 0.0
    while True:
        try:
            await preparer.start()
        except ImageError as error:
            now = time.monotonic()
            if error.kind is not Kind.UNAVAILABLE or now >= deadline:
                raise
            if now >= tell_at:
                _log.warning("waiting for containerd, to adopt the images of this node: %s", error)
                tell_at = now + _TELL_EVERY
            await asyncio.sleep(pause)
        else:
            return
