"""Limits of what a tenant's own pools are: how many, and how much they keep warm. The role operate has none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.core.backend import Backend
from sandlot_gateway.core.holdings import Amounts, amounts
from sandlot_gateway.core.instances import PoolSpec
from sandlot_gateway.keys import Tenant
from sandlot_gateway.quotas import Quotas, excess

# Of a tenant. A pool of size 0 uses nothing that a quota limits, but each one is a value of the metrics' label `pool`,
# at every gateway and the controller.
MOST_POOLS = 64


class PoolLimits:
    """Decides whether a tenant may have a pool, by the pools that the backend shows and those that it is being given."""

    def __init__(self, backend: Backend, quotas: Quotas) -> None:
        self._backend = backend
        self._quotas = quotas
        self._changing: list[PoolSpec] = []

    @contextmanager
    def changing(self, spec: PoolSpec) -> Iterator[None]:
        """Count the pool while the backend is given it, which may not show it until then.

        Nothing may be awaited between `check` and this: else concurrent requests pass a limit together.
        """
        self._changing.append(spec)
        try:
            yield
        finally:
            self._changing.remove(spec)

    def check(self, spec: PoolSpec, *, before: PoolSpec | None, who: Tenant) -> None:
        """Check that a key may have a new pool, or one that was `before`. Raises ApiError 422.

        A pool that becomes no larger is allowed, also where there are more than a limit that was lowered, or than an
        operator made.
        """
        if who.operates:
            return
        shown = [status.spec for status in self._backend.pools()]
        pools = [pool for pool in (*shown, *self._changing) if pool.owner == spec.owner]
        names = {pool.name for pool in pools}
        if spec.name not in names and len(names) >= MOST_POOLS:
            raise ApiError(
                422,
                f"name: tenant {who.name!r} has {len(names)} pools, and with the role use may have {MOST_POOLS}; "
                "change or delete one of them, or ask the operator for another",
                field="name",
            )
        if before is not None and all(
            new <= old for new, old in zip(_amounts(spec), _amounts(before), strict=True)
        ):
            return
        warm: dict[str, Amounts] = {}  # by name; of a pool that is being changed the larger of both
        for pool in pools:
            both = zip(_amounts(pool), warm.get(pool.name, Amounts()), strict=True)
            warm[pool.name] = Amounts(*(max(one, other) for one, other in both))
        warm.pop(spec.name, None)
        others = Amounts()
        for each in warm.values():
            others = others.plus(each)
        over = excess(self._quotas.of(who), used=others, asked=_amounts(spec))
        if over is not None:
            limit, quota = over.quota.text(over.limit), over.quota
            raise ApiError(
                422,
                f"size: tenant {who.name!r} may keep instances of at most {limit} {quota.noun} warm "
                f"(quota {quota.name}); choose a smaller size",
                field="size",
            )


def _amounts(spec: PoolSpec) -> Amounts:
    template = spec.template
    one = amounts(cpu=template.cpu, memory=template.memory, gpus=template.gpu_count)
    return one.times(spec.size)
