"""Timers by key, at most one per instance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class KeyedTimers:
    """A set of timers; a key is free again when its function runs."""

    def __init__(self, *, after: float) -> None:
        """`after`: seconds, unless `start` says otherwise."""
        self._after = after
        self._waiting: dict[str, tuple[asyncio.TimerHandle, Callable[[], None]]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._waiting

    def start(self, key: str, call: Callable[[], None], *, after: float | None = None) -> None:
        """Call `call` later; `key` must have no timer."""
        loop = asyncio.get_running_loop()
        seconds = self._after if after is None else after
        self._waiting[key] = loop.call_later(seconds, self._due, key), call

    def cancel(self, key: str) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            waiting[0].cancel()

    def fire_all(self) -> None:
        """Run all pending functions now."""
        for key in list(self._waiting):
            self._due(key)

    def close(self) -> None:
        for key in list(self._waiting):
            self.cancel(key)

    def _due(self, key: str) -> None:
        timer, call = self._waiting.pop(key)
        timer.cancel()
        call()
