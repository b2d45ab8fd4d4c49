"""Finds the weights by which tenants, and the runs of each, take turns in the queues of this gateway."""

from __future__ import annotations

from collections.abc import Callable

from sandlot_gateway.core.fair_queue import Path
from sandlot_gateway.core.runs import RunId
from sandlot_gateway.quotas import Quotas


class Weights:
    """A tenant's weight is in the operator's quotas, a run's in its lease; 1 without. `of_run`: of a tenant's run."""

    def __init__(self, quotas: Quotas, *, of_run: Callable[[str, RunId], int]) -> None:
        self._quotas = quotas
        self._of_run = of_run

    def __call__(self, path: Path) -> int:
        """Return the weight of the tenant, or of the tenant's run, that the path names."""
        tenant, *run = path
        return self._of_run(tenant, RunId(run[0])) if run else self._quotas.of_tenant(tenant).weight or 1
