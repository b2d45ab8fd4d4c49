"""How long to wait before the next attempt at something that fails."""

from __future__ import annotations

import random


def pause(failures: int, *, shortest: float, longest: float) -> float:
    """Random seconds between `shortest` and its `failures`-th doubling, `longest` at most."""
    # After an hour or two of failures 2 to their number is more than a float can hold.
    most = min(longest, shortest * 2 ** min(failures, 16))
    return random.uniform(shortest, most)
