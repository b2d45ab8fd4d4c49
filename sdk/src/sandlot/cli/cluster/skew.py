"""By how much one clock is ahead of another, as far as answers with whole seconds tell it."""

from __future__ import annotations

import math
from dataclasses import dataclass

_EXACT = 6.0  # seconds between the bounds where no answer took long


@dataclass(frozen=True, slots=True)
class Skew:
    """Seconds by which a clock is at least and at most ahead of another; negative: it is behind."""

    least: float
    most: float

    @classmethod
    def told(cls, date: float, *, sent: float, got: float, kept: float = 0.0) -> Skew:
        """Return that of a server's clock against ours: its `date`, in whole seconds, is of a moment in between, or of one
        before, if the server keeps dates for up to so many seconds.
        """
        return cls(date - got, date + 1 + kept - sent)

    def __add__(self, other: Skew) -> Skew:
        """`other`: of the clock that this is measured against, to a third one."""
        return Skew(self.least + other.least, self.most + other.most)

    def __neg__(self) -> Skew:
        return Skew(-self.most, -self.least)

    @property
    def middle(self) -> float:
        return (self.least + self.most) / 2

    @property
    def within(self) -> int:
        """Whole seconds that it cannot exceed, in either direction."""
        return math.ceil(max(abs(self.least), abs(self.most)))

    def may_exceed(self, seconds: float) -> bool:
        """Return whether it may be more, since the answers took so long that they do not tell."""
        return self.within > seconds and self.most - self.least > _EXACT

    def exceeds(self, seconds: float) -> bool:
        """Return whether it is more for certain."""
        return self.least > seconds or self.most < -seconds
