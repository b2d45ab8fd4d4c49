"""Waits for what no event tells: asks until the answer is true. A test that can await an event does that instead."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Sized
from typing import TypeVar

T = TypeVar("T")

SECONDS = 200.0  # as long as a machine may need on which other tests run, too


def wait_until(look: Callable[[], T], *, seconds: float = SECONDS, pause: float = 0.02, what: str = "") -> T:
    """The first true answer. Raises AssertionError, with the last answer and `what`, when none is true in time."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, _late(seconds, found, what)
        time.sleep(pause)
    return found


async def until(
    look: Callable[[], T | Awaitable[T]], *, seconds: float = SECONDS, pause: float = 0.01, what: str = ""
) -> T:
    """As `wait_until`, while the loop goes on; `look` may be a coroutine function."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, _late(seconds, found, what)
        await asyncio.sleep(pause)


def wait_until_empty(look: Callable[[], Sized], *, seconds: float = SECONDS, pause: float = 0.02) -> None:
    """Raises AssertionError with what the last answer held."""
    deadline = time.monotonic() + seconds
    while left := look():
        assert time.monotonic() < deadline, f"left behind for {seconds:g} s: {left!r}"
        time.sleep(pause)


async def until_empty(look: Callable[[], Sized], *, seconds: float = SECONDS, pause: float = 0.01) -> None:
    """As `wait_until_empty`, while the loop goes on."""
    deadline = time.monotonic() + seconds
    while left := look():
        assert time.monotonic() < deadline, f"left behind for {seconds:g} s: {left!r}"
        await asyncio.sleep(pause)


async def loop_turns(count: int = 1) -> None:
    """What can run without waiting has run: so many turns of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


def _late(seconds: float, found: object, what: str) -> str:
    return f"not within {seconds:g} s: {what or 'a true answer'}; the last answer: {found!r}"
