"""Exponential backoff with jitter."""

from __future__ import annotations

import random


def pause(failures: int, *, shortest: float, longest: float) -> float:
    """Return random seconds between `shortest` and its `failures`-th doubling, at most `longest`."""
    # without this bound, an hour or two of failures would overflow the float
    most = min(longest, shortest * 2 ** min(failures, 16))
    return random.uniform(shortest, most)
