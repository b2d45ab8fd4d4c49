"""When tasks begin, and which generator process has which of them: pure functions of the profile and a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Literal


def arrivals(
    *, rate: float, seconds: float, spacing: Literal["even", "poisson"], seed: int
) -> Iterator[float]:
    """Moments in [0, seconds), in order: `rate` a second, at even distances or as independent callers come."""
    if spacing == "even":
        number = 0
        while (moment := number / rate) < seconds:
            yield moment
            number += 1
        return
    chance = random.Random(seed)
    moment = chance.expovariate(rate)
    while moment < seconds:
        yield moment
        moment += chance.expovariate(rate)


def share(total: int, *, process: int, processes: int) -> int:
    """How many of `total` things this process has; the shares of all processes add up to `total`."""
    return total // processes + (process < total % processes)
