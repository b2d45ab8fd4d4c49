"""The checkpoints of a gateway, as its settings say."""

from __future__ import annotations

from sandlot_gateway.checkpoints.quota import StoreLimits
from sandlot_gateway.checkpoints.service import Checkpoints
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.quotas import Quotas
from sandlot_gateway.settings import Settings


def checkpoints(settings: Settings, *, pool: HttpPool, quotas: Quotas, shares: bool) -> Checkpoints | None:
    """Return the checkpoints of a gateway with these settings; None without a directory for them.

    `shares`: its sandboxes run on its own machine, and may mount a copy.
    """
    directory = settings.checkpoints()
    if directory is None:
        return None
    limits = StoreLimits(
        total_bytes=settings.checkpoint_total,
        tenant_bytes=lambda tenant: quotas.of_tenant(tenant).checkpoint_bytes,
        tenant_count=settings.checkpoint_tenant_count,
        failed_keep=settings.checkpoint_failed_keep,
    )
    return Checkpoints(directory, pool=pool, max_bytes=settings.checkpoint_max, limits=limits, shares=shares)
