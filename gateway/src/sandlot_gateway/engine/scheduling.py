"""Finds the weights and priorities by which tenants, and the runs of each, take turns in the queues of this gateway."""

from __future__ import annotations

from collections.abc import Callable

from sandlot_gateway.core.fair_queue import Path, Scheduling
from sandlot_gateway.core.runs import RunId
from sandlot_gateway.quotas import Quotas


class TenantScheduling:
    """A tenant's weight is in the operator's quotas, a run's weight and priority in its lease. `of_run`: of a tenant's."""

    def __init__(self, quotas: Quotas, *, of_run: Callable[[str, RunId], Scheduling]) -> None:
        self._quotas = quotas
        self._of_run = of_run

    def __call__(self, path: Path) -> Scheduling:
        """Return how the tenant, or the tenant's run, that the path names takes its turns."""
        tenant, *run = path
        if run:
            return self._of_run(tenant, RunId(run[0]))
        return Scheduling(weight=self._quotas.of_tenant(tenant).weight or 1)
