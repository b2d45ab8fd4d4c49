"""Gives the sockets of UDP exposures turns, so that floods of datagrams leave the gateway time for its requests."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable

BATCH = 32  # datagrams in a turn
BATCH_BYTES = 128 * 1024
_SHARE = 0.5  # of the gateway's time, for all UDP exposures together
_AHEAD = 0.002  # seconds of it that may be used at once


class Turns:
    """Counts the time that datagrams took; once the share is used up, sockets wait in order for a turn.

    `by` is the exposure: those that wait have a turn each, in order, however many sockets of one wait.
    """

    def __init__(self) -> None:
        self._left = _AHEAD
        self._at = time.monotonic()
        self._waiting: dict[Hashable, deque[Callable[[], None] | asyncio.Future[None]]] = {}
        self._timer: asyncio.Handle | None = None

    def spent(self, seconds: float) -> None:
        self._refill()
        self._left -= seconds

    def must_wait(self) -> bool:
        self._refill()
        return self._left <= 0 or bool(self._waiting)

    def wait(self, resume: Callable[[], None], *, by: Hashable) -> None:
        """Call `resume` once those that wait already have had a turn; it begins with its own."""
        self._wait(resume, by)

    async def turn(self, *, by: Hashable) -> None:
        """Wait for a turn, if the share is used up."""
        if self.must_wait():
            resumed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._wait(resumed, by)
            await resumed

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()

    def _wait(self, waiter: Callable[[], None] | asyncio.Future[None], by: Hashable) -> None:
        self._waiting.setdefault(by, deque()).append(waiter)
        self._plan()

    def _refill(self) -> None:
        now = time.monotonic()
        self._left = min(_AHEAD, self._left + _SHARE * (now - self._at))
        self._at = now

    def _plan(self) -> None:
        if self._timer is None:
            pause = max(0.001, -self._left / _SHARE)
            self._timer = asyncio.get_running_loop().call_later(pause, self._give)

    def _give(self) -> None:
        self._timer = None
        self._refill()
        for _ in range(sum(map(len, self._waiting.values()))):
            if self._left <= 0:
                break
            by = next(iter(self._waiting))
            waiting = self._waiting.pop(by)
            waiter = waiting.popleft()
            if waiting:
                self._waiting[by] = waiting  # behind the other exposures
            if not isinstance(waiter, asyncio.Future):
                waiter()
            elif not waiter.done():
                waiter.set_result(None)
                # Its coroutine runs in the loop's next round, and only then is its time counted.
                self._timer = asyncio.get_running_loop().call_soon(self._give)
                return
        if self._waiting:
            self._plan()
