"""Remembers ids for two minutes, so that a client's retry does not act twice."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

KEEP = 120.0  # seconds; the most patient client retries for 92
MOST = 65_536


class DedupeCache:
    """Maps an id to a number for KEEP seconds after its last `put`; holds the latest MOST ids."""

    __slots__ = ("_clock", "_known")

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, tuple[float, int]] = {}  # least recently put first

    def get(self, key: str) -> int | None:
        """Return the number, or None if it was never put or has expired."""
        known = self._known.get(key)
        return None if known is None or known[0] <= self._clock() - KEEP else known[1]

    def put(self, key: str, value: int) -> None:
        """Store a number and restart its time."""
        now = self._clock()
        self._known.pop(key, None)
        self._known[key] = (now, value)
        while len(self._known) > MOST or next(iter(self._known.values()))[0] <= now - KEEP:
            del self._known[next(iter(self._known))]
