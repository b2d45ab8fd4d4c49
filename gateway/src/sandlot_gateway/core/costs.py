"""What usage costs by an operator's prices: whole billionths of the currency, so that parts add up to the whole.

Plain data, no I/O. Each row of usage is priced and rounded by itself; all sums are of these whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from .usage import Amounts

DIGITS = 9
ANY_TYPE = "*"
_REMEMBERED = 1000  # types whose price is remembered: they are texts of callers
_PER_HOUR = 3_600_000  # milliseconds, which usage is kept in


@dataclass(slots=True)
class Cost:
    """Amounts in billionths of the currency."""

    cores: int = 0
    memory: int = 0
    disk: int = 0
    gpus: int = 0

    @property
    def total(self) -> int:
        return self.cores + self.memory + self.disk + self.gpus

    def add(self, other: Cost) -> None:
        self.cores += other.cores
        self.memory += other.memory
        self.disk += other.disk
        self.gpus += other.gpus


@dataclass(frozen=True, slots=True)
class Prices:
    """Billionths of the currency for an hour of one core, GiB or GPU; `gpu_hour` by type, ANY_TYPE for all others.

    `is_type` returns whether a GPU of the type that a create named is surely of one that has a price; by default only if
    they are the same.
    """

    currency: str
    core_hour: int
    memory_gib_hour: int
    disk_gib_hour: int
    gpu_hour: Mapping[str, int]
    is_type: Callable[[str, str], bool] = str.__eq__
    _found: dict[str, int] = field(default_factory=dict[str, int], init=False, repr=False, compare=False)

    def cost(self, amounts: Amounts) -> Cost:
        """Return what these amounts cost, each part rounded to a billionth."""
        gpus, others = 0, _milliseconds(amounts.gpu_seconds)
        for kind, seconds in amounts.gpu_types.items():
            of_type = min(_milliseconds(seconds), others)
            others -= of_type
            gpus += _cost(of_type, self._of_type(kind))
        return Cost(
            cores=_cost(_milliseconds(amounts.core_seconds), self.core_hour),
            memory=_cost(_milliseconds(amounts.memory_gib_seconds), self.memory_gib_hour),
            disk=_cost(_milliseconds(amounts.disk_gib_seconds), self.disk_gib_hour),
            gpus=gpus + _cost(others, self.gpu_hour[ANY_TYPE]),
        )

    def _of_type(self, kind: str) -> int:
        """Return the price of a type: its own, else the highest one of those that it is of."""
        if (found := self.gpu_hour.get(kind, self._found.get(kind))) is None:
            fitting = [price for name, price in self.gpu_hour.items() if self.is_type(kind, name)]
            found = max(fitting, default=self.gpu_hour[ANY_TYPE])
            if len(self._found) < _REMEMBERED:
                self._found[kind] = found
        return found


def text(billionths: int) -> str:
    """Return an amount as a decimal, with two to nine digits after the point."""
    whole, _, digits = f"{Decimal(billionths).scaleb(-DIGITS):.{DIGITS}f}".partition(".")
    return f"{whole}.{digits.rstrip('0').ljust(2, '0')}"


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _cost(milliseconds: int, price: int) -> int:
    return (2 * milliseconds * price + _PER_HOUR) // (2 * _PER_HOUR)
