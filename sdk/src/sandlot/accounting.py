"""Records of the accounting: what tenants and training runs used, and what a tenant may have at once."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Cost:
    """What usage costs by the operator's prices of now, in `currency` (such as "EUR").

    The amounts are exact to a billionth, and the four parts add up to `total`.
    """

    currency: str
    total: Decimal
    cores: Decimal = Decimal(0)
    memory: Decimal = Decimal(0)
    disk: Decimal = Decimal(0)
    gpus: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What sandboxes used; `tenant`, `run` and `time` are None unless the sums are grouped by them.

    `run` is also None for sandboxes without one, and "*" for those of a tenant with too many runs for a row each. `time`
    is when the hour or day begins. `sandboxes` counts those that began in the time, and the seconds are those in which
    they ran, times what they asked for. `cost` is None if the operator has set no prices.
    """

    tenant: str | None = None
    run: str | None = None
    time: str | None = None
    sandboxes: int = 0
    sandbox_seconds: float = 0.0
    core_seconds: float = 0.0
    memory_gib_seconds: float = 0.0
    disk_gib_seconds: float = 0.0
    gpu_seconds: float = 0.0
    cost: Cost | None = None


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The rows between two times, which are whole hours."""

    since: str
    until: str
    rows: tuple[UsageRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Quota:
    """What the key's tenant may have at once, and what it has.

    `limit` is None without a limit, `used` if the server does not measure it.
    """

    name: str
    limit: float | None = None
    used: float | None = None
