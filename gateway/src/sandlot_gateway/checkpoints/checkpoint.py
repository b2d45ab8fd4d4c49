"""Defines the metadata of a checkpoint, which the store keeps as a JSON document."""

from __future__ import annotations

from enum import StrEnum

import msgspec
from sandlot_contract.ids import SandboxId


class State(StrEnum):
    PENDING = "PENDING"
    DURABLE = "DURABLE"
    FAILED = "FAILED"
    DELETING = "DELETING"  # in a document of a gateway before `.deleted`


class Checkpoint(msgspec.Struct, omit_defaults=True):
    """The metadata of a checkpoint. Times are Unix seconds, sizes bytes."""

    id: str
    tenant: str
    sandbox_id: SandboxId
    docker_image: str
    disk_size_bytes: int
    created_at: float
    updated_at: float
    state: State = State.PENDING
    parent_id: str | None = None
    team_id: str | None = None
    depth: int = 0
    stored_bytes: int | None = None  # that it added to the store: its pack
    occupied_bytes: int = 0  # of the files in it
    error: str | None = None
    name: str | None = None  # that its caller finds it by
    metadata: dict[str, str] = {}
    failed_by_files: bool = False  # what the sandbox's code did is why it FAILED
    paths: tuple[str, ...] = ()  # only what is at or below them; all if there are none
    without: tuple[str, ...] = ()  # patterns of names that it does not have
    entries: int = 0  # files, directories, links and deletions in it
    origin_id: str | None = None  # the checkpoint that its sandbox was created from
    revoked: bool = False  # FAILED after it was DURABLE
    shared: bool = (
        False  # its files are in the memory of its gateway's machine, and last as long as that gateway
    )
    expires_at: float | None = None  # it is deleted then, whatever became of its maker
    by_quota: bool = (
        False  # its tenant's quota says when it expires; else it is one of the gateway's own that does
    )
    packed: bool = False  # its archive lies in packs; else it is one file, of a gateway before these
    # In a directory: the name of its own pack, and in that of its files, which no other checkpoint has had; empty if a
    # gateway before packs wrote it.
    files: str = ""
