"""Admits creates within the quotas of their tenant, and tells how much of them is used."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sandlot_gateway.core.create_rates import CreateRates
from sandlot_gateway.core.holdings import Amounts, Holdings
from sandlot_gateway.keys import Tenant
from sandlot_gateway.quotas import HELD, Excess, Limits, QuotaName, Quotas, excess
from sandlot_gateway.sandboxes import Spec

from .errors import QuotaReached

_UNTIL_AN_END = 10.0  # seconds after which to ask again for what only the end of a sandbox gives back


class QuotaUse(NamedTuple):
    """A quota and what is used of it; None: no limit, or nothing to measure."""

    name: QuotaName
    limit: float | None
    used: float | None


class Admission:
    """Sandboxes count by `holdings`, those that wait for an instance as those that run; creates by this gateway alone."""

    def __init__(
        self, quotas: Quotas, *, holdings: Holdings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._quotas = quotas
        self._holdings = holdings
        self._clock = clock
        self._rates = CreateRates()

    def check(self, who: Tenant, spec: Spec) -> None:
        """Check that the tenant may create this sandbox now. Raises QuotaReached."""
        limits = self._quotas.of(who)
        over = excess(limits, used=self._holdings.of(who.name), asked=spec.amounts())
        if over is not None:
            raise _reached(over, tenant=who.name)
        self._check_rate(who, limits)

    def check_group(self, who: Tenant, specs: Sequence[Spec]) -> None:
        """Check that the tenant may create all of these now. Raises QuotaReached."""
        limits = self._quotas.of(who)
        asked = Amounts()
        for spec in specs:
            asked = asked.plus(spec.amounts())
        over = excess(limits, used=self._holdings.of(who.name), asked=asked)
        if over is not None:
            raise _reached(over, tenant=who.name, what="group", field="members")
        self._check_rate(who, limits, count=len(specs))

    def _check_rate(self, who: Tenant, limits: Limits, *, count: int = 1) -> None:
        """Check the quota of creates. Raises QuotaReached."""
        rate, burst = limits.creates_per_second, limits.burst
        if rate is None:
            return
        if count > burst:
            raise QuotaReached(
                f"the group has {count} sandboxes, and the quota creates_burst of tenant {who.name!r} is {burst}; create"
                " a smaller group, or ask the operator for more",
                quota=QuotaName.CREATES_PER_SECOND,
                field="members",
            )
        wait = self._rates.wait(who.name, rate=rate, burst=burst, now=self._clock(), count=count)
        if wait:
            raise QuotaReached(
                f"quota creates_per_second of tenant {who.name!r}: it is {rate:g} with a burst of {burst}, which is used"
                f" up; try again in {math.ceil(wait * 10) / 10:g} s, or ask the operator for more",
                quota=QuotaName.CREATES_PER_SECOND,
                retry_after=wait,
            )

    def has_room(self, who: Tenant, spec: Spec) -> bool:
        """Return whether the tenant's sandboxes leave room for this one, whatever the rate of its creates."""
        used = self._holdings.of(who.name)
        return excess(self._quotas.of(who), used=used, asked=spec.amounts()) is None

    def begun(self, who: Tenant) -> None:
        """Count a create that has begun."""
        if (rate := self._quotas.of_tenant(who.name).creates_per_second) is not None:
            self._rates.spend(who.name, rate=rate, now=self._clock())

    def refused(self, tenant: str) -> None:
        """Give back what a create that had begun took from the rate, since it came to nothing."""
        if (rate := self._quotas.of_tenant(tenant).creates_per_second) is not None:
            self._rates.give_back(tenant, rate=rate, now=self._clock())

    def uses(self, who: Tenant) -> list[QuotaUse]:
        """Return the quotas of sandboxes and creates, and how much of them is used."""
        limits = self._quotas.of(who)
        held = [
            QuotaUse(quota.name, getattr(limits, quota.name), amount / quota.unit)
            for quota, amount in zip(HELD, self._holdings.of(who.name), strict=True)
        ]
        return [*held, *self._rate_uses(who, limits)]

    def _rate_uses(self, who: Tenant, limits: Limits) -> list[QuotaUse]:
        rate, burst, spent = limits.creates_per_second, None, None
        if rate is not None:
            burst = limits.burst
            spent = round(self._rates.spent(who.name, rate=rate, now=self._clock()), 3)
        return [
            QuotaUse(QuotaName.CREATES_PER_SECOND, rate, None),
            QuotaUse(QuotaName.CREATES_BURST, burst, spent),
        ]


def _reached(over: Excess, *, tenant: str, what: str = "create", field: str | None = None) -> QuotaReached:
    """Return the error; `field`: of a group, which asks for more of any quota by a member more."""
    quota, name = over.quota, over.quota.name
    field = field or quota.field
    limit, used, asked = quota.text(over.limit), quota.text(over.used), quota.text(over.asked)
    if over.asked > over.limit and field is None:
        return QuotaReached(
            f"the quota {name} of tenant {tenant!r} is {limit}; ask the operator for more", quota=name
        )
    if over.asked > over.limit:
        return QuotaReached(
            f"this {what} asks for {asked} {quota.noun}, and the quota {name} of tenant {tenant!r} is {limit} for all of"
            " its sandboxes; ask for less, or ask the operator for more",
            quota=name,
            field=field,
        )
    wants = "" if field is None else f", and this {what} asks for {asked}"
    less = "" if field is None else "ask for less, "
    return QuotaReached(
        f"quota {name} of tenant {tenant!r}: it is {limit}, {used} {quota.noun} are in use{wants}; delete sandboxes,"
        f" {less}or ask the operator for more",
        quota=name,
        retry_after=_UNTIL_AN_END,
    )
