"""Follows files that change while a program runs, such as those of a mounted Secret."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

_log = logging.getLogger(__name__)

T = TypeVar("T")

_PAUSE = 1.0  # seconds between two reads


def content_of(path: Path) -> bytes | str:
    """Return the file's content, or as text the reason why there is none."""
    try:
        return path.read_bytes()
    except OSError as error:
        return f"cannot read it: {error.strerror}"


async def follow(
    read: Callable[[], T], use: Callable[[T], Awaitable[None]], *, used: T, failing: Callable[[bool], None]
) -> None:
    """Call `use` with what `read` returns each time that it differs from the last, `used` at first; until cancelled.

    Polling detects a write in place, a rename and the swap of a mounted Secret alike. An exception of `use` is logged and
    told to `failing`; the next change is used all the same.
    """
    before = used
    while True:
        await asyncio.sleep(_PAUSE)
        found = await asyncio.to_thread(read)
        # A file being written must not be used half: two reads have to agree.
        if found == before and found != used:
            used = found
            try:
                await use(found)
            except Exception:
                failing(True)
                _log.exception("cannot use a changed file; the next change is tried again")
        before = found
