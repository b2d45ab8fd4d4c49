"""Bounds the time that work for unknown callers may take of a second."""

from __future__ import annotations

from collections.abc import Callable


class Allowance:
    """A token bucket of `rate` units of work a second, which holds as many. `clock` in seconds."""

    def __init__(self, rate: float, *, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._clock = clock
        self._left = rate
        self._at = clock()

    def take(self, amount: float) -> bool:
        """Count work, unless earlier work has used up the allowance; one piece may be larger than the bucket."""
        now = self._clock()
        self._left = min(self._rate, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left <= 0:
            return False
        self._left -= amount
        return True
