"""Defers writes until claims pause, so that background work does not compete with a burst of creates."""

from __future__ import annotations

import asyncio


class Debouncer:
    """Fires `quiet` seconds after the last claim, at most `longest` seconds after the first."""

    def __init__(self, *, quiet: float = 0.1, longest: float = 0.5) -> None:
        self._quiet = quiet
        self._longest = longest
        self._first = 0.0
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._here = asyncio.Event()
        self._here.set()

    def claim(self) -> None:
        """Note a claim."""
        loop = asyncio.get_running_loop()
        self._last = loop.time()
        if self._timer is None:
            self._first = self._last
            self._here.clear()
            self._timer = loop.call_at(self._due, self._look)

    async def wait(self) -> None:
        await self._here.wait()

    def end(self) -> None:
        """Release all waiters now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._here.set()

    @property
    def _due(self) -> float:
        return min(self._last + self._quiet, self._first + self._longest)

    def _look(self) -> None:
        # One timer for all claims: moving it with each claim costs more than checking again.
        loop = asyncio.get_running_loop()
        if loop.time() < self._due:
            self._timer = loop.call_at(self._due, self._look)
        else:
            self.end()
