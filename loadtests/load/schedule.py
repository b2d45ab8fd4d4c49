"""Start times of tasks and their split among generator processes: pure functions of profile and seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Literal


def arrivals(
    *, rate: float, seconds: float, spacing: Literal["even", "poisson"], seed: int
) -> Iterator[float]:
    """Return sorted times in [0, seconds): `rate` per second, evenly spaced or as a Poisson process."""
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
    """Return this process's share of `total`; the shares of all processes add up to `total`."""
    return total // processes + (process < total % processes)
