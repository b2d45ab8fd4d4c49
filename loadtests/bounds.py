"""Reads `rangespec.yaml` and decides which measured rows hold their bound."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import yaml

SPEC = Path(__file__).with_name("rangespec.yaml")
_FIELDS = {"what", "unit", "of", "where", "at_most", "at_least", "or"}


class SpecError(Exception):
    """The bounds are invalid; the message names the row and the error."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One row: exactly one of `at_most` and `at_least` is set.

    `of` is the value's path in a load test's summary, `where` the kind of place the bound applies to ("" for all).
    `floors` maps rows that are ratios to a floor to their maximum: if these hold, a miss of this bound is due to the
    machine's own floor, not to what was measured.
    """

    name: str
    what: str
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    of: str = ""
    where: str = ""
    floors: Mapping[str, float] = field(default_factory=dict)

    def state(self, values: Mapping[str, float]) -> Literal["held", "missed", "at the floor"]:
        """Judge the values of a run, by row; a row without a value is missed."""
        value = values.get(self.name, math.nan)
        if self.held(value):
            return "held"
        if math.isnan(value) or not self.floors:
            return "missed"
        low = all(values.get(row, math.inf) <= most for row, most in self.floors.items())
        return "at the floor" if low else "missed"

    def held(self, value: float) -> bool:
        """Return whether the value holds the bound; False for a value that is not a number."""
        if math.isnan(value):
            return False
        return value <= self.at_most if self.at_most is not None else value >= self._least

    @property
    def counts_losses(self) -> bool:
        """Return whether each count above 0 is a fault: a second measurement without one would not undo the first."""
        return not self.unit and self.at_most == 0

    @property
    def _least(self) -> float:
        assert self.at_least is not None
        return self.at_least

    @property
    def limit(self) -> str:
        return f"≤ {self.at_most:g}" if self.at_most is not None else f"≥ {self._least:g}"

    def used(self, value: float) -> float:
        """Return the share of the bound that `value` uses: 1 at the bound, more if it is missed."""
        if math.isnan(value):
            return math.inf
        if self.at_most is None:
            return self._least / value if value > 0 else math.inf
        if self.at_most == 0:
            return 0.0 if value <= 0 else math.inf
        return value / self.at_most


def read_bounds(path: Path = SPEC) -> dict[str, Bound]:
    """Read the bounds by name, in the order of the file. Raises SpecError."""
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise SpecError(f"{path}: {error}") from error
    if not isinstance(document, dict) or not document:
        raise SpecError(f"{path}: must map names of rows to their bounds")
    return {str(name): _bound(str(name), row) for name, row in document.items()}


def _bound(name: str, row: object) -> Bound:
    if not isinstance(row, dict):
        raise SpecError(f"{name}: must be a mapping")
    unknown = set(row) - _FIELDS
    if unknown:
        raise SpecError(f"{name}: unknown field {sorted(map(str, unknown))[0]!r}")
    limits = {key: row[key] for key in ("at_most", "at_least") if key in row}
    if len(limits) != 1:
        raise SpecError(f"{name}: needs one of at_most and at_least")
    (limit,) = limits.values()
    if not _is_number(limit):
        raise SpecError(f"{name}: {limit!r} is not a number")
    floors = row.get("or", {})
    if not isinstance(floors, dict) or not all(_is_number(most) for most in floors.values()):
        raise SpecError(f"{name}: `or` must map rows to numbers")
    texts = {key: str(row.get(key, "")) for key in ("unit", "of", "where")}
    return Bound(name=name, what=str(row.get("what", name)), **texts, **limits, floors=floors)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def missed(values: Mapping[str, float], *, bounds: Mapping[str, Bound]) -> list[str]:
    """Return the names of rows that miss their bound although their floor does not.

    A row without a value is missed, a value without a row an error.
    """
    unknown = set(values) - set(bounds)
    if unknown:
        raise SpecError(f"{sorted(unknown)[0]} is measured and has no bound")
    return [name for name, bound in bounds.items() if bound.state(values) == "missed"]
