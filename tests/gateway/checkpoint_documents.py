"""Checkpoints for tests of stores: their documents, and whole ones."""

from __future__ import annotations

import time

from sandlot_contract.ids import SandboxId
from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.checkpoints.interface import CheckpointStore
from sandlot_gateway.checkpoints.rules import new_id


def checkpoint(*, tenant: str = "default", age: float = 0.0) -> Checkpoint:
    now = time.time() - age
    return Checkpoint(
        id=new_id(),
        tenant=tenant,
        sandbox_id=SandboxId("sb-1"),
        docker_image="host",
        disk_size_bytes=1 << 30,
        created_at=now,
        updated_at=now,
    )


def kept(store: CheckpointStore, *, tenant: str, size: int = 1, age: float = 0.0) -> Checkpoint:
    """A DURABLE one."""
    made = checkpoint(tenant=tenant, age=age)
    part = store.begin(made)
    part.write(bytes(size))
    store.finish(made, part)
    return made


def failed(store: CheckpointStore, *, tenant: str = "a", age: float = 0.0) -> Checkpoint:
    made = checkpoint(tenant=tenant, age=age)
    part = store.begin(made)
    store.fail(made, "no room")
    part.close()
    return made
