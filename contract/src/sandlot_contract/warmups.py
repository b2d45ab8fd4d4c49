"""Shared by gateway and controller: limits of a warm-up, and the estimate of its time left."""

from __future__ import annotations

from collections import deque

MAX_IMAGES = 5000  # in one warm-up, whose record has all of them
MAX_BYTES = (
    1 << 20
)  # of their names and weights as JSON; with its errors, etcd has to take the record, 1.5 MiB at most
MAX_ERRORS = 100  # that a record keeps
_RECENT = 20  # preparations over which the rate is measured
_LEAST = 3  # below this there is no estimate


class Pace:
    """Measures the rate at which images become ready; times are in seconds on any clock."""

    def __init__(self, began: float) -> None:
        self._times: deque[float] = deque([began], maxlen=_RECENT + 1)

    def ready(self, at: float) -> None:
        """Count one that has just become ready, or failed."""
        self._times.append(at)

    def seconds_left(self, left: int, *, now: float) -> float | None:
        """Return `left` divided by the rate of the last 20; None until three are done.

        The time since the last one counts too, so that the estimate grows while nothing becomes ready.
        """
        done = len(self._times) - 1
        if left <= 0:
            return 0.0
        if done < _LEAST:
            return None
        return left * (now - self._times[0]) / done
