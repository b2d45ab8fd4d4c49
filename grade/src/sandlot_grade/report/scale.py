"""Maps values to pixels, linearly or logarithmically, and selects round tick values."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values `low`..`high` to pixels `start`..`end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        if self.log:
            value = max(value, self.low)
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + (self.end - self.start) * share

    def ticks(self) -> list[float]:
        """Return round values inside the range, at most about eight."""
        return _log_ticks(self.low, self.high) if self.log else _linear_ticks(self.low, self.high)


def linear(*, high: float, start: float, end: float, low: float = 0.0) -> Scale:
    """Return a linear scale that is never empty."""
    return Scale(low=low, high=high if high > low else low + 1.0, start=start, end=end)


def logarithmic(*, low: float, high: float, start: float, end: float) -> Scale:
    """Return a logarithmic scale that includes `low` and `high`, widened to half decades."""
    low = max(low, 1e-9)
    high = max(high, low)
    # A value within a rounding error of a step takes that step: without min and max it would be drawn outside.
    first = min(_round_log(low, down=True), low)
    last = max(_round_log(high, down=False), high)
    return Scale(low=first, high=last if last > first else first * 10, start=start, end=end, log=True)


def _round_log(value: float, *, down: bool) -> float:
    decade = 10.0 ** math.floor(math.log10(value))
    steps = [decade * factor for factor in (1, 2, 5, 10)]
    if down:
        return max(step for step in steps if step <= value * 1.0000001)
    return min(step for step in steps if step >= value * 0.9999999)


def _linear_ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 5
    decade = 10.0 ** math.floor(math.log10(rough))
    step = next(decade * factor for factor in (1, 2, 5, 10) if decade * factor >= rough)
    first = math.ceil(low / step)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    factors = (1, 2, 5) if high / low <= 100 else (1,)
    decades = range(math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9) + 1)
    values = [factor * 10.0**decade for decade in decades for factor in factors]
    return [value for value in values if low * 0.9999 <= value <= high * 1.0001]


def short(value: float) -> str:
    """Format a number for an axis: 0.05, 20, 5k, 2M."""
    for limit, unit in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e6 if unit == 'M' else 1e3):g}{unit}"
    return f"{value:.6g}"


def seconds(value: float) -> str:
    """Format a duration in seconds, in the most readable unit."""
    if value < 0.9995e-3:
        return f"{value * 1e6:.0f} µs"
    if value < 0.9995:
        digits = 2 if value < 0.01 else 1 if value < 0.1 else 0
        return f"{value * 1e3:.{digits}f} ms"
    return f"{value:.2f} s" if value < 100 else f"{value:.0f} s"
