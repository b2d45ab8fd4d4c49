"""Checkpoints for tests of stores: their documents, and whole ones."""

from __future__ import annotations

import random
import time

from sandlot_contract.ids import SandboxId
from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.checkpoints.interface import CheckpointStore
from sandlot_gateway.checkpoints.manifest import Chunk, ManifestWriter
from sandlot_gateway.checkpoints.rules import new_id, pack_name


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


def later(one: Checkpoint) -> Checkpoint:
    """A later one with the same id, as the next pause of a sandbox is."""
    made = checkpoint(tenant=one.tenant)
    made.id, made.created_at = one.id, max(made.created_at, one.created_at + 0.001)
    return made


def kept(store: CheckpointStore, *, tenant: str, size: int = 1, age: float = 0.0) -> Checkpoint:
    """A DURABLE one that shares nothing with others; with its manifest it has `size` bytes, if that is more than one's."""
    made = checkpoint(tenant=tenant, age=age)
    part = store.begin(made)
    part.write(random.randbytes(max(1, size - MANIFEST)))
    store.finish(made, part)
    return made


def _manifest() -> int:
    writer = ManifestWriter(pack := pack_name("cp-" + "0" * 24))
    writer.add(Chunk(pack, 0, 0, bytes(32)))
    return len(writer.encoded())


MANIFEST = _manifest()  # bytes, of an archive of one chunk


def failed(store: CheckpointStore, *, tenant: str = "a", age: float = 0.0) -> Checkpoint:
    made = checkpoint(tenant=tenant, age=age)
    part = store.begin(made)
    store.fail(made, "no room")
    part.close()
    return made
