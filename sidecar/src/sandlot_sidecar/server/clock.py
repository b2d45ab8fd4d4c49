"""The two ends that come by themselves: a claim's deadline and its idle timeout. No timer runs without a claim."""

from __future__ import annotations

import asyncio
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """Calls `end(verdict, message)` at the deadline, or when `in_use()` was false for the idle timeout."""

    def __init__(self, *, end: Callable[[str, str], None], in_use: Callable[[], bool]) -> None:
        self.last_active = time.time()
        self._end = end
        self._in_use = in_use
        self._loop = asyncio.get_running_loop()
        self._idle_timeout: float | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None

    def begin(self, *, deadline_at: float | None, idle_timeout: float | None) -> None:
        """A claim's time begins; `deadline_at` is Unix time, `idle_timeout` seconds."""
        self.stop()
        self._idle_timeout = idle_timeout
        self.activity()
        if deadline_at is not None:
            self._deadline = self._loop.call_later(
                max(0.0, deadline_at - time.time()), self._deadline_reached
            )

    def activity(self) -> None:
        """Use began or ended: idleness counts from here (not while there is any)."""
        self.last_active = time.time()
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._idle_timeout is not None and not self._in_use():
            self._idle = self._loop.call_later(self._idle_timeout, self._idle_reached)

    def stop(self) -> None:
        """The claim is over."""
        for timer in (self._deadline, self._idle):
            if timer is not None:
                timer.cancel()
        self._deadline = self._idle = self._idle_timeout = None

    def _deadline_reached(self) -> None:
        self._deadline = None
        self._end("deadline", "the sandbox reached its time limit")

    def _idle_reached(self) -> None:
        self._idle = None
        if not self._in_use():
            self._end("idle", "nobody used the sandbox for its idle timeout")
