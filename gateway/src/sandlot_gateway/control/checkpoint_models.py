"""Request and response bodies of the routes of checkpoints."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator
from sandlot_contract.ids import SandboxId

from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.control.field_types import Strict, Text, unique
from sandlot_gateway.control.present import iso


def _no_dots(path: str) -> str:
    if {".", ".."}.intersection(path.split("/")):
        raise ValueError(f"{path!r} must have no '.' and '..'")
    return path


CheckpointName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*$")]
SelectedPath = Annotated[
    str, Field(min_length=2, max_length=1024, pattern=r"^(/[^/\x00]{1,255})+$"), AfterValidator(_no_dots)
]
LeftName = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^/\x00]+$")]
METADATA_MAX = 16 << 10  # bytes; every list reads all documents
CheckpointId = Annotated[str, Field(min_length=1, max_length=64)]


class CheckpointResponse(BaseModel):
    id: str
    sandbox_id: SandboxId
    parent_id: str | None = Field(
        description="The previous checkpoint of the sandbox, or the one that it was created from."
    )
    team_id: str | None
    state: State
    depth: int = Field(description="Number of ancestors. Each checkpoint contains all its files.")
    docker_image: str
    disk_size_bytes: int | None
    stored_bytes: int | None = Field(
        description="Bytes that it added to the store, once DURABLE: less what earlier ones have."
    )
    occupied_bytes: int = Field(description="Sum of the file sizes.")
    entries: int = Field(description="(Sandlot) Number of files, directories, links and deletions in it.")
    origin_id: str | None = Field(
        description="(Sandlot) The checkpoint that its sandbox was created from; null: from an image."
    )
    error: str | None
    failed_by_files: bool = Field(
        description="(Sandlot) It is FAILED because of the sandbox's files, which its code wrote: too many bytes, say."
    )
    created_at: str
    updated_at: str
    name: str | None
    metadata: dict[str, str]
    paths: list[str] = Field(description="(Sandlot) It has only what is at or below them; empty: everything.")
    without: list[str] = Field(description="(Sandlot) It has no file or directory of such a name.")


class CheckpointRequest(Strict):
    name: CheckpointName | None = Field(
        None, description="(Sandlot) To find it by; several may have the same name."
    )
    metadata: dict[str, Text] | None = Field(
        None, max_length=64, description="(Sandlot) Returned unchanged; at most 16 KiB."
    )

    paths: list[SelectedPath] = Field(
        [],
        max_length=16,
        description="(Sandlot) Save only what is at or below these paths. None may be a link or have one above it.",
    )
    without: list[LeftName] = Field(
        [],
        max_length=64,
        description="(Sandlot) Names to leave out, with `*`, `?` and `[…]`; a directory with all that is in it.",
    )

    @model_validator(mode="after")
    def _small(self) -> CheckpointRequest:
        size = sum(len(f"{name}{value}".encode()) for name, value in (self.metadata or {}).items())
        if size > METADATA_MAX:
            raise ValueError(f"metadata: has {size} bytes, the limit is {METADATA_MAX}: keep it in a file")
        return self


class CheckpointList(BaseModel):
    checkpoints: list[CheckpointResponse]


class CheckpointProblem(BaseModel):
    checkpoint_id: str
    code: Literal["NOT_FOUND"]
    message: str


class CheckpointsDeleted(BaseModel):
    deleted: list[str]
    errors: list[CheckpointProblem] = Field(description="Always empty.")


class CheckpointBatchRequest(Strict):
    checkpoint_ids: Annotated[list[CheckpointId], BeforeValidator(unique)] = Field(
        min_length=1, max_length=100, json_schema_extra={"uniqueItems": True}
    )


class CheckpointBatch(BaseModel):
    """Each requested id is in one of the lists."""

    checkpoints: list[CheckpointResponse]
    errors: list[CheckpointProblem]


def problem(checkpoint_id: str, code: str, message: str) -> dict[str, Any]:
    return {"checkpoint_id": checkpoint_id, "code": code, "message": message}


def document(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "id": checkpoint.id,
        "sandbox_id": checkpoint.sandbox_id,
        "parent_id": checkpoint.parent_id,
        "team_id": checkpoint.team_id,
        "state": checkpoint.state,
        "depth": checkpoint.depth,
        "docker_image": checkpoint.docker_image,
        "disk_size_bytes": checkpoint.disk_size_bytes,
        "stored_bytes": checkpoint.stored_bytes,
        "occupied_bytes": checkpoint.occupied_bytes,
        "entries": checkpoint.entries,
        "origin_id": checkpoint.origin_id,
        "error": checkpoint.error,
        "failed_by_files": checkpoint.failed_by_files,
        "created_at": iso(checkpoint.created_at),
        "updated_at": iso(checkpoint.updated_at),
        "name": checkpoint.name,
        "metadata": checkpoint.metadata,
        "expires_at": iso(checkpoint.expires_at),
        "paths": checkpoint.paths,
        "without": checkpoint.without,
    }
