"""Knows the callers of one group at this gateway: who waits for it, and for how long it is kept for one that left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class GroupCallers:
    """Calls `gone` if no caller came back within `grace` seconds of `keep`."""

    def __init__(self, *, grace: float, gone: Callable[[], object]) -> None:
        self._grace = grace
        self._gone = gone
        self._waiting = 0
        self._back_by = 0.0  # loop time until which the last one may come back
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> bool:
        """Whether one waits here."""
        return self._waiting > 0

    @property
    def expected(self) -> bool:
        """Whether one waits here, or may come back.

        Not while the group is kept for another gateway: two of them would keep it for each other.
        """
        return self.waiting or asyncio.get_running_loop().time() < self._back_by

    def came(self) -> None:
        """Count a call; each needs one of `left`."""
        self.forget()
        self._waiting += 1

    def left(self) -> None:
        """Note the end of a call."""
        self._waiting -= 1
        if not self.waiting:
            self._back_by = asyncio.get_running_loop().time() + self._grace

    def keep(self) -> None:
        """Keep the group for the grace period from now on."""
        self.forget()
        self._timer = asyncio.get_running_loop().call_later(self._grace, self._gone)

    def asked_elsewhere(self) -> None:
        """Keep the group anew if it is kept, because a caller waits for it at another gateway."""
        if self._timer is not None:
            self.keep()

    def forget(self) -> None:
        """Never call `gone`, unless the group is kept again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
