"""The size of a pool with `minSize` and `maxSize`: 1.5 times the claims expected during one start."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

_SPARE = 1.5
_WINDOWS = (10.0, 60.0)  # seconds; the short one detects a burst, the long one a slow stream
_HOLD = 120.0  # seconds a size is kept after the claims that called for it
_WEIGHT = 0.2  # weight of the latest start in the mean
_MOST_CLAIMS = 10_000


@dataclass(slots=True)
class Demand:
    """Demand of one pool. All `now` are from one monotonic clock and never decrease."""

    start_seconds: float = 5.0  # until one has been measured
    _measured: bool = False
    _claims: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_CLAIMS))
    # (time, size) wanted, in descending order of size
    _held: deque[tuple[float, int]] = field(default_factory=deque)

    def claimed(self, *, now: float) -> None:
        self._claims.append(now)

    def started(self, *, seconds: float) -> None:
        weight = _WEIGHT if self._measured else 1.0
        self.start_seconds += weight * (seconds - self.start_seconds)
        self._measured = True

    def size(self, *, least: int, most: int, now: float) -> int:
        while self._claims and self._claims[0] <= now - _WINDOWS[-1]:
            self._claims.popleft()
        rate = max(sum(at > now - window for at in self._claims) / window for window in _WINDOWS)
        wanted = min(math.ceil(rate * self.start_seconds * _SPARE), most)
        while self._held and self._held[-1][1] <= wanted:
            self._held.pop()
        self._held.append((now, wanted))
        while self._held[0][0] < now - _HOLD:
            self._held.popleft()
        return max(least, min(self._held[0][1], most))
