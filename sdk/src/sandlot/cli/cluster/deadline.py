"""The moment after which nothing more is read of a cluster."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

OVER = "the time was over (--timeout)"


@dataclass(frozen=True, slots=True)
class Deadline:
    at: float = math.inf  # by the monotonic clock

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds)

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self.at

    def within(self, seconds: float) -> float:
        """Return how long a step may take which by itself may take this long; above 0, which sockets take for another mode."""
        return max(0.01, min(seconds, self.at - time.monotonic()))


NEVER = Deadline()
