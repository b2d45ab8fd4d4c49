"""Defines the quotas of tenants, and reads them from JSON: an object of quotas for each tenant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandlot_gateway.core.fair_queue import MOST_WEIGHT
from sandlot_gateway.core.holdings import Amounts
from sandlot_gateway.followed_file import BadContent, read_json
from sandlot_gateway.keys import Tenant, is_tenant

ANY_TENANT = "*"


class BadQuotas(BadContent):
    """Raised for invalid quotas; the message names tenant and quota."""


class QuotaName(StrEnum):
    SANDBOXES = "sandboxes"
    CORES = "cores"
    MEMORY_GB = "memory_gb"
    GPUS = "gpus"
    CREATES_PER_SECOND = "creates_per_second"
    CREATES_BURST = "creates_burst"
    CHECKPOINT_BYTES = "checkpoint_bytes"
    WEIGHT = "weight"


class Limits(BaseModel):
    """The quotas of one tenant; None is no limit. `weight`: of its creates' turns in the queue; None is 1.

    `checkpoint_keep_seconds`: how long its checkpoints last from their completion on; None is for ever.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    sandboxes: int | None = Field(default=None, ge=0)
    cores: float | None = Field(default=None, ge=0, le=1e9)
    memory_gb: float | None = Field(default=None, ge=0, le=1e9)
    gpus: int | None = Field(default=None, ge=0)
    creates_per_second: float | None = Field(default=None, ge=0.001, le=1e6)
    creates_burst: int | None = Field(default=None, ge=1)
    checkpoint_bytes: int | None = Field(default=None, ge=0)
    checkpoint_keep_seconds: float | None = Field(default=None, ge=60, le=1e9)
    weight: int | None = Field(default=None, ge=1, le=MOST_WEIGHT)

    @property
    def burst(self) -> int:
        """The creates that may come at once."""
        return self.creates_burst or max(1, math.ceil(self.creates_per_second or 0))


@dataclass(frozen=True, slots=True)
class Held:
    """A quota of what sandboxes hold."""

    name: QuotaName
    unit: int  # of `Amounts` in one of the quota's
    noun: str
    field: str | None = None  # of a create, which asks for more or less of it

    def text(self, amount: float) -> str:
        """Return an amount of `Amounts` in the quota's unit."""
        return f"{amount / self.unit:.10g}"


# In the order of `Amounts`.
HELD = (
    Held(QuotaName.SANDBOXES, 1, "sandboxes"),
    Held(QuotaName.CORES, 1000, "cores", "cpu_cores"),
    Held(QuotaName.MEMORY_GB, 1 << 30, "GiB of memory", "memory_gb"),
    Held(QuotaName.GPUS, 1, "GPUs", "gpu_count"),
)


class Excess(NamedTuple):
    """A quota that would be exceeded; amounts are those of `Amounts`."""

    quota: Held
    limit: int
    used: int
    asked: int


def excess(limits: Limits, *, used: Amounts, asked: Amounts) -> Excess | None:
    """Return a quota of which there is not as much left as asked for, or None.

    Of several, one that no end of a sandbox can make room for comes first.
    """
    found: Excess | None = None
    for quota, has, wants in zip(HELD, used, asked, strict=True):
        limit: float | None = getattr(limits, quota.name)
        # Who asks for nothing of it is not refused, although more may be in use than a limit that was lowered.
        if limit is None or not wants or has + wants <= (most := round(limit * quota.unit)):
            continue
        one = Excess(quota, most, has, wants)
        if wants > most:
            return one
        found = found or one
    return found


class Quotas:
    """The quotas of all tenants. `defaults` hold where no entry says otherwise."""

    def __init__(self, defaults: Limits | None = None) -> None:
        self._defaults = defaults or Limits()
        self._any = self._defaults
        self._tenants: dict[str, Limits] = {}

    def __len__(self) -> int:
        return len(self._tenants)

    def replace(self, content: bytes | str) -> str:
        """Replace all entries and say what there is now. Raises BadQuotas, and then changes nothing."""
        given = _entries(content)
        for_any = _merged(self._defaults, given.pop(ANY_TENANT, {}), tenant=ANY_TENANT)
        self._tenants = {name: _merged(for_any, entry, tenant=name) for name, entry in given.items()}
        self._any = for_any
        return f"it has {len(self)} tenants now"

    def of_tenant(self, name: str) -> Limits:
        return self._tenants.get(name, self._any)

    def of(self, who: Tenant) -> Limits:
        """Return the quotas that hold for this key of a tenant, whose own number of sandboxes comes first."""
        limits = self.of_tenant(who.name)
        if who.max_sandboxes is None:
            return limits
        return limits.model_copy(update={"sandboxes": who.max_sandboxes})


def _entries(content: bytes | str) -> dict[str, dict[str, Any]]:
    """Return the entries by tenant. Raises BadQuotas."""
    document = read_json(content, error=BadQuotas, advice="write an object of quotas for each tenant")
    if not isinstance(document, dict):
        raise BadQuotas('it must be an object such as {"TENANT": {"sandboxes": 10}}')
    for name, entry in document.items():
        if name != ANY_TENANT and not is_tenant(name):
            raise BadQuotas(f"tenant {name!r}: the name must be * or match [A-Za-z0-9._-]{{1,64}}"[:300])
        if not isinstance(entry, dict):
            raise BadQuotas(f'tenant {name!r}: must be an object such as {{"sandboxes": 10}}')
    return document


def _merged(base: Limits, entry: dict[str, Any], *, tenant: str) -> Limits:
    """Return `base` with the entry's quotas, also those that are null. Raises BadQuotas."""
    try:
        given = Limits.model_validate(entry)
    except ValidationError as error:
        raise _bad(error, tenant=tenant) from error
    limits = base.model_copy(update={name: getattr(given, name) for name in given.model_fields_set})
    if given.creates_burst is not None and limits.creates_per_second is None:
        raise BadQuotas(f"tenant {tenant!r}, creates_burst: set creates_per_second, too")
    return limits


def _bad(error: ValidationError, *, tenant: str) -> BadQuotas:
    first = error.errors()[0]
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return BadQuotas(
            f"tenant {tenant!r}, {name!r}: there is no such quota; use {', '.join(QuotaName)}"[:400]
        )
    null = "the weight 1" if name == "weight" else "no limit"
    return BadQuotas(f"tenant {tenant!r}, {name}: {first['msg']}; correct it, or write null for {null}")
