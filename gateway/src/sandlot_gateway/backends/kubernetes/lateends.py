"""Ends that another gateway seems to have asked for: it writes them, and this one only where it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class LateEnds:
    """By instance. `after`: seconds until an end that nobody has written is written here."""

    def __init__(self, *, after: float) -> None:
        self._after = after
        self._waiting: dict[str, tuple[asyncio.TimerHandle, Callable[[], None]]] = {}

    def __contains__(self, instance_id: str) -> bool:
        return instance_id in self._waiting

    def add(self, instance_id: str, write: Callable[[], None]) -> None:
        timer = asyncio.get_running_loop().call_later(self._after, self._due, instance_id)
        self._waiting[instance_id] = timer, write

    def drop(self, instance_id: str) -> None:
        """It was written."""
        waiting = self._waiting.pop(instance_id, None)
        if waiting is not None:
            waiting[0].cancel()

    def now(self) -> None:
        """This gateway leaves: nothing is waited for any more."""
        for instance_id in list(self._waiting):
            self._due(instance_id)

    def _due(self, instance_id: str) -> None:
        timer, write = self._waiting.pop(instance_id)
        timer.cancel()
        write()
