"""Documents of checkpoints for tests of the store."""

from __future__ import annotations

import time

from sandlot_contract.ids import SandboxId
from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.checkpoints.store import Store


def checkpoint(store: Store, *, tenant: str = "default", age: float = 0.0) -> Checkpoint:
    now = time.time() - age
    return Checkpoint(
        id=store.new_id(),
        tenant=tenant,
        sandbox_id=SandboxId("sb-1"),
        docker_image="host",
        disk_size_bytes=1 << 30,
        created_at=now,
        updated_at=now,
    )
