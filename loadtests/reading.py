"""What one measurement found: the value that has a bound, and what it was made of."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Reading:
    """`value` is in the unit of the row; `parts` are (name, text) of what it was computed from.

    `curves` are durations in seconds by name, for the plots of the report.
    """

    value: float
    parts: dict[str, str] = field(default_factory=dict)
    curves: dict[str, list[float]] = field(default_factory=dict)
