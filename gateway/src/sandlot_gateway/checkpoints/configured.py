"""The checkpoints of a gateway, as its settings say."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection
from pathlib import Path

from sandlot_gateway.checkpoints.copies_in_use import CopiesInUse
from sandlot_gateway.checkpoints.interface import CheckpointStore
from sandlot_gateway.checkpoints.rules import StoreLimits
from sandlot_gateway.checkpoints.service import Checkpoints
from sandlot_gateway.checkpoints.shared import SharedCopies
from sandlot_gateway.checkpoints.store import Store
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.quotas import Quotas
from sandlot_gateway.s3_place import place
from sandlot_gateway.settings import Settings


def checkpoints(
    settings: Settings,
    *,
    pool: HttpPool,
    quotas: Quotas,
    state_dir: Path,
    shares: Callable[[], bool],
    users: Callable[[], Collection[str]],
) -> Checkpoints | None:
    """Return the checkpoints of a gateway with these settings; None without a place for them.

    `shares`: all its sandboxes run on its own machine, and can mount a copy, which has its place in a directory; `users`:
    see CopiesInUse.
    """
    directory = settings.checkpoints()
    if directory is None and settings.checkpoint_s3 is None:
        return None
    in_use = CopiesInUse(state_dir / "copies", users=users)
    limits = StoreLimits(
        total_bytes=settings.checkpoint_total,
        tenant_bytes=lambda tenant: quotas.of_tenant(tenant).checkpoint_bytes,
        tenant_count=settings.checkpoint_tenant_count,
        failed_keep=settings.checkpoint_failed_keep,
        keep=lambda tenant: quotas.of_tenant(tenant).checkpoint_keep_seconds,
        copies=in_use.sizes,
    )
    store = _store(settings, directory, limits=limits)
    shared = SharedCopies(in_use, possible=shares) if settings.checkpoint_s3 is None else None
    return Checkpoints(store, pool=pool, max_bytes=settings.checkpoint_max, shared=shared)


def _store(settings: Settings, directory: Path | None, *, limits: StoreLimits) -> CheckpointStore:
    """Return the store that the settings name. Raises OSError if its package is not installed."""
    if settings.checkpoint_s3 is None:
        assert directory is not None
        return Store(directory, limits=limits)
    try:
        from sandlot_gateway.checkpoints.s3.store import S3Store
    except ModuleNotFoundError as error:
        text = f"--checkpoint-s3 needs the package {error.name}: install sandlot-gateway[s3]"
        raise OSError(errno.ENOPKG, text) from error
    found = place(
        settings.checkpoint_s3,
        endpoint=settings.checkpoint_s3_endpoint,
        region=settings.checkpoint_s3_region,
    )
    return S3Store(found, limits=limits)
