"""Remembers for two minutes what was done under an id, so that a client's repeat does not do it again."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

KEEP = 120.0  # seconds; the most patient client repeats for 92
MOST = 65_536


class Recent:
    """A number by id, known for KEEP seconds after it was last put in, the latest MOST of them."""

    __slots__ = ("_clock", "_known")

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, tuple[float, int]] = {}  # the longest unused first

    def get(self, key: str) -> int | None:
        """The number; None: never, or too long ago."""
        known = self._known.get(key)
        return None if known is None or known[0] <= self._clock() - KEEP else known[1]

    def put(self, key: str, value: int) -> None:
        """From now on `get` says `value`."""
        now = self._clock()
        self._known.pop(key, None)
        self._known[key] = (now, value)
        while len(self._known) > MOST or next(iter(self._known.values()))[0] <= now - KEEP:
            del self._known[next(iter(self._known))]
