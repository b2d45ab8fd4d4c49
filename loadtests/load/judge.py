"""Reads the bounded values from a summary and decides which bounds of a profile are missed."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from loadtests.bounds import Bound, SpecError, read_bounds

SPEC = Path(__file__).resolve().parents[1] / "rangespec-load.yaml"


def bounds_of(profile: str, *, on: Collection[str], short: bool, path: Path = SPEC) -> dict[str, Bound]:
    """Return a profile's bounds by name; `on` holds the `where` values of this place. Raises SpecError.

    A short run has too few calls for bounds on time or memory: only counts, the rows without a unit, are bounded.
    """
    found = {
        name: bound
        for name, bound in read_bounds(path).items()
        if name.partition(".")[0] == profile and bound.where in ("", *on)
    }
    for name, bound in found.items():
        if not bound.of:
            raise SpecError(f"{name}: needs `of`: a path into the summary, or one divided by another")
    return {name: bound for name, bound in found.items() if not (short and bound.unit)}


def value_of(formula: str, summary: Mapping[str, Any]) -> float:
    """Evaluate `path` or `path / path`; NaN if the summary lacks a value."""
    dividend, _, divisor = formula.partition(" / ")
    value = _at(dividend, summary)
    if not divisor:
        return value
    below = _at(divisor, summary)
    return value / below if below else math.nan


def _at(path: str, summary: Mapping[str, Any]) -> float:
    value: Any = summary
    for key in path.strip().split("."):
        if not isinstance(value, Mapping) or key not in value:
            return math.nan
        value = value[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return float(value)


def judged(bounds: Mapping[str, Bound], summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each bound from the summary; a missing value misses its bound."""
    rows: list[dict[str, Any]] = []
    for name, bound in bounds.items():
        value = value_of(bound.of, summary)
        rows.append(
            {
                "name": name,
                "what": bound.what,
                "of": bound.of,
                "value": None if math.isnan(value) else round(value, 4),
                "unit": bound.unit,
                "limit": bound.limit,
                "used": None if math.isinf(bound.used(value)) else round(bound.used(value), 4),
                "held": bound.held(value),
            }
        )
    return rows
