"""Timers by key: one for each instance that something is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class KeyedTimers:
    """A key whose timer has fired is free again before its function is called."""

    def __init__(self, *, after: float) -> None:
        """`after`: seconds, for all of them."""
        self._after = after
        self._waiting: dict[str, asyncio.TimerHandle] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._waiting

    def start(self, key: str, call: Callable[[], None]) -> None:
        """`key` has no timer yet."""
        loop = asyncio.get_running_loop()
        self._waiting[key] = loop.call_later(self._after, self._due, key, call)

    def cancel(self, key: str) -> None:
        timer = self._waiting.pop(key, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()

    def _due(self, key: str, call: Callable[[], None]) -> None:
        del self._waiting[key]
        call()
