"""The result of one measurement: the bounded value and its components."""

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


@dataclass(frozen=True, slots=True)
class Again:
    """A row was measured twice: its `first` value, and whether the second one was `taken`, which is the better one."""

    first: float
    taken: bool
