"""Timers by key: one for each instance that something is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class KeyedTimers:
    """A key whose timer has fired is free again before its function is called."""

    def __init__(self, *, after: float) -> None:
        """`after`: seconds, for all of them."""
        self._after = after
        self._waiting: dict[str, tuple[asyncio.TimerHandle, Callable[[], None]]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._waiting

    def start(self, key: str, call: Callable[[], None]) -> None:
        """`key` has no timer yet."""
        loop = asyncio.get_running_loop()
        self._waiting[key] = loop.call_later(self._after, self._due, key), call

    def cancel(self, key: str) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            waiting[0].cancel()

    def fire_all(self) -> None:
        """Nothing is waited for any more."""
        for key in list(self._waiting):
            self._due(key)

    def close(self) -> None:
        for key in list(self._waiting):
            self.cancel(key)

    def _due(self, key: str) -> None:
        timer, call = self._waiting.pop(key)
        timer.cancel()
        call()
