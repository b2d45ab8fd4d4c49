"""Computes percentiles, distributions and rates of lists of numbers."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` (0 to 1) of `values` lie, interpolated. Raises ValueError if empty."""
    if not values:
        raise ValueError("no values")
    if not 0 <= share <= 1:
        raise ValueError(f"share must be between 0 and 1, not {share}")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def median(values: Sequence[float]) -> float:
    """Return the median. Raises ValueError if empty."""
    return percentile(values, 0.5)


def distribution(values: Sequence[float], *, points: int = 200) -> list[tuple[float, float]]:
    """Return the cumulative distribution as at most about `points` steps (value, share of values up to it)."""
    ordered = sorted(values)
    count = len(ordered)
    wanted = (
        sorted({round(step * (count - 1) / max(points - 1, 1)) for step in range(points)}) if count else []
    )
    return [(ordered[index], (index + 1) / count) for index in wanted]


def rate(moments: Sequence[float], *, start: float, end: float, bins: int = 40) -> list[tuple[float, float]]:
    """Return events per second over time, as (seconds since `start` at a bin's middle, rate)."""
    width = (end - start) / bins
    if width <= 0:
        return []
    counts = [0] * bins
    for moment in moments:
        if start <= moment <= end:
            counts[min(int((moment - start) / width), bins - 1)] += 1
    return [((index + 0.5) * width, count / width) for index, count in enumerate(counts)]


def level(spans: Sequence[tuple[float, float]], *, start: float) -> list[tuple[float, float]]:
    """Return how many of the (begin, end) spans are open, as (seconds since `start`, number) at each change."""
    changes = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    steps: list[tuple[float, float]] = []
    current = 0
    for moment, change in changes:
        current += change
        steps.append((moment - start, current))
    return steps
