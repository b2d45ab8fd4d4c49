"""Start times of tasks, their split among generator processes and their images: pure functions of profile and seed."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate, pairwise
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


class Popularity:
    """A Zipf distribution over `count` items, the first of which is the most popular."""

    def __init__(self, count: int, *, zipf: float) -> None:
        self._sums = list(accumulate(1 / rank**zipf for rank in range(1, count + 1)))

    def pick(self, number: int, *, seed: int) -> int | None:
        """Return the item of a task, the same in every process; None without items."""
        if not self._sums:
            return None
        chance = random.Random(f"{seed} {number}").random()
        return min(bisect(self._sums, chance * self._sums[-1]), len(self._sums) - 1)

    def weights(self) -> list[int]:
        """Return how often each item comes in a thousand, at least 1."""
        shares = (after - before for before, after in pairwise((0.0, *self._sums)))
        return [max(1, round(1000 * share / self._sums[-1])) for share in shares]
