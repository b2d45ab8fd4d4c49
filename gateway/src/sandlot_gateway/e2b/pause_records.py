"""What the checkpoint of a pause keeps of its sandbox, in its metadata."""

from __future__ import annotations

import secrets

import msgspec
from sandlot_contract.ids import SandboxId

from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.sandboxes import Sandbox, Spec

from .failures import Problem

ENTRY = "e2b.paused"  # of the checkpoint's metadata
_MOST = 64 << 10  # bytes: every list reads the records of all tenants
_LATER = 8 << 10  # bytes that a sandbox may get after its create, such as its network's rules


class Record(msgspec.Struct):
    """`nonce` makes the key with which one of several connects begins the sandbox."""

    sandbox: Sandbox
    nonce: str


def entry_of(sandbox: Sandbox, *, spare: int = 0) -> str:
    """Return the entry of a sandbox, which leaves `spare` bytes of the most that it may have. Raises Problem."""
    most = _MOST - spare
    entry = msgspec.json.encode(Record(sandbox, secrets.token_hex(8))).decode()
    if (size := len(entry.encode())) > most:
        text = f"envs: a pause keeps what the sandbox was created with, which has {size} bytes; the limit is {most}"
        raise Problem(400, f"{text}: create it with smaller envs, and write the rest to a file")
    return entry


def check_fits(spec: Spec) -> None:
    """Check that a sandbox of this create can be paused. Raises Problem."""
    made = Sandbox(id=SandboxId(""), tenant="", spec=spec, created_at=0.0, updated_at=0.0)
    entry_of(made, spare=_LATER)


def record_of(checkpoint: Checkpoint) -> Record | None:
    """Return what a checkpoint keeps; None if it is none of a pause."""
    entry = checkpoint.metadata.get(ENTRY)
    if entry is None:
        return None
    try:
        return msgspec.json.decode(entry, type=Record)
    except (ValueError, RecursionError):
        return None  # a user's checkpoint with such an entry
