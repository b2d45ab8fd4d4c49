"""Routes that create, list and delete checkpoints of sandboxes; a create of a sandbox restores one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator
from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from sandlot_gateway.audit.call import note
from sandlot_gateway.checkpoints.quota import StoreFull
from sandlot_gateway.checkpoints.service import Busy, Checkpoints
from sandlot_gateway.checkpoints.store import Checkpoint, State
from sandlot_gateway.checkpoints.transfer import Selection
from sandlot_gateway.control.errors import ApiError, body_errors, errors, not_found
from sandlot_gateway.control.field_types import Strict, Text, unique
from sandlot_gateway.control.models import Done
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.present import iso, json_response
from sandlot_gateway.control.services import Have, Owned, Services, Who, appeared
from sandlot_gateway.sandboxes import Sandbox


def _no_dots(path: str) -> str:
    if {".", ".."}.intersection(path.split("/")):
        raise ValueError(f"{path!r} must have no '.' and '..'")
    return path


router = APIRouter(prefix=PREFIX, tags=["checkpoints"])

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
    stored_bytes: int | None = Field(description="Size of the compressed archive, once DURABLE.")
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
    code: Literal["NOT_FOUND", "CONFLICT"]
    message: str


class CheckpointsDeleted(BaseModel):
    deleted: list[str]
    errors: list[CheckpointProblem]


class CheckpointBatchRequest(Strict):
    checkpoint_ids: Annotated[list[CheckpointId], BeforeValidator(unique)] = Field(
        min_length=1, max_length=100, json_schema_extra={"uniqueItems": True}
    )


class CheckpointBatch(BaseModel):
    """Each requested id is in one of the lists."""

    checkpoints: list[CheckpointResponse]
    errors: list[CheckpointProblem]


def checkpoints_of(have: Services, *, field: str | None = None) -> Checkpoints:
    """Return the checkpoint service. Raises ApiError 501 if no directory is configured."""
    if have.checkpoints is None:
        text = "checkpoints need a directory; set --checkpoint-dir (chart value gateway.checkpoints.claim)"
        raise ApiError(501, f"not configured: {text}", field=field)
    return have.checkpoints


@router.post(
    "/sandbox/checkpoints:batchGet",
    response_model=CheckpointBatch,
    responses=body_errors(501),
    summary="Up to 100 checkpoints",
)
async def batch(body: CheckpointBatchRequest, have: Have, who: Who) -> Response:
    checkpoints = checkpoints_of(have)
    found: list[dict[str, Any]] = []
    missing: list[dict[str, Any]] = []
    for checkpoint_id in body.checkpoint_ids:
        checkpoint = await checkpoints.get(who.name, checkpoint_id)
        if checkpoint is None:
            missing.append(_problem(checkpoint_id, "NOT_FOUND", "no such checkpoint"))
        else:
            found.append(_document(checkpoint))
    return json_response({"checkpoints": found, "errors": missing})


@router.get(
    "/sandbox/checkpoints",
    response_model=CheckpointList,
    responses=errors(501),
    summary="The tenant's checkpoints with a name, the first completed one first",
)
async def find(have: Have, who: Who, name: Annotated[str, Query(min_length=1, max_length=128)]) -> Response:
    found = await checkpoints_of(have).named(who.name, name)
    return json_response({"checkpoints": [_document(one) for one in found]})


@router.get(
    "/sandbox/checkpoints/{checkpoint_id}",
    response_model=CheckpointResponse,
    responses=errors(404, 501),
    summary="Get one checkpoint",
)
async def get(checkpoint_id: str, have: Have, who: Who) -> Response:
    return json_response(_document(await _known(checkpoints_of(have), who.name, checkpoint_id)))


@router.delete(
    "/sandbox/checkpoints/{checkpoint_id}",
    response_model=Done,
    responses=errors(404, 409, 501),
    summary="Delete one checkpoint",
)
async def delete(checkpoint_id: str, have: Have, who: Who) -> Response:
    checkpoints = checkpoints_of(have)
    checkpoint = await _known(checkpoints, who.name, checkpoint_id)
    try:
        await checkpoints.delete(checkpoint)
    except Busy as error:
        raise ApiError(409, str(error)) from error
    return json_response({"success": True, "message": "deleted"})


@router.post(
    "/sandbox/{sandbox_id}/checkpoints",
    response_model=CheckpointResponse,
    responses=body_errors(404, 409, 501, 507),
    summary="Create a checkpoint",
)
async def create(sandbox: Owned, have: Have, body: CheckpointRequest | None = None) -> Response:
    """Start a checkpoint and return it as PENDING; it becomes DURABLE or FAILED."""
    checkpoint = await begin_checkpoint(sandbox, have, body=body)
    note(id=checkpoint.id)
    return json_response(_document(checkpoint))


async def begin_checkpoint(
    sandbox: Sandbox,
    have: Services,
    *,
    body: CheckpointRequest | None = None,
    checkpoint_id: str | None = None,
    metadata: dict[str, str] | None = None,
) -> Checkpoint:
    """Start a checkpoint; `checkpoint_id` and `metadata` are of the gateway itself. Raises ApiError."""
    checkpoints = checkpoints_of(have)
    instance = have.lifecycle.instance_of(sandbox)
    if sandbox.status is not Status.RUNNING or instance is None:
        raise ApiError(409, f"the sandbox is {sandbox.status}; a checkpoint needs a RUNNING one")
    try:
        checkpoint = await checkpoints.create(
            sandbox,
            instance,
            name=body and body.name,
            metadata=metadata or (body and body.metadata),
            checkpoint_id=checkpoint_id,
            selection=Selection() if body is None else Selection(tuple(body.paths), tuple(body.without)),
        )
    except Busy as error:
        raise ApiError(409, str(error)) from error
    except StoreFull as error:
        raise ApiError(507, str(error)) from error
    except OSError as error:
        raise ApiError(
            507, f"cannot write the checkpoint: {error.strerror}; free space or ask the operator"
        ) from error
    return checkpoint


@router.get(
    "/sandbox/{sandbox_id}/checkpoints",
    response_model=CheckpointList,
    responses=errors(404, 501),
    summary="A sandbox's checkpoints, oldest first",
)
async def list_checkpoints(
    sandbox_id: SandboxId,
    have: Have,
    who: Who,
    checkpoint_id: Annotated[
        str | None, Query(max_length=64, description="Return only this checkpoint.")
    ] = None,
) -> Response:
    """Return the checkpoints, also of a sandbox that has ended."""
    found = await _of_sandbox(checkpoints_of(have), have, tenant=who.name, sandbox_id=sandbox_id)
    wanted = [one for one in found if checkpoint_id is None or one.id == checkpoint_id]
    return json_response({"checkpoints": [_document(one) for one in wanted]})


@router.delete(
    "/sandbox/{sandbox_id}/checkpoints",
    response_model=CheckpointsDeleted,
    responses=errors(404, 501),
    summary="Delete all checkpoints of a sandbox",
)
async def delete_all(sandbox_id: SandboxId, have: Have, who: Who) -> Response:
    """Delete all checkpoints except one that is still being written, which is reported as a CONFLICT."""
    checkpoints = checkpoints_of(have)
    deleted: list[str] = []
    note(deleted=deleted)
    kept: list[dict[str, Any]] = []
    for checkpoint in await _of_sandbox(checkpoints, have, tenant=who.name, sandbox_id=sandbox_id):
        try:
            await checkpoints.delete(checkpoint)
            deleted.append(checkpoint.id)
        except Busy as error:
            kept.append(_problem(checkpoint.id, "CONFLICT", str(error)))
    return json_response({"deleted": deleted, "errors": kept})


async def _of_sandbox(
    checkpoints: Checkpoints, have: Services, *, tenant: str, sandbox_id: SandboxId
) -> list[Checkpoint]:
    found = await checkpoints.list(tenant, sandbox_id)
    if not found:
        await appeared([sandbox_id], have.directory, tenant=tenant)
        if have.directory.of_tenant(sandbox_id, tenant) is None:
            raise not_found(sandbox_id)
    return found


async def _known(checkpoints: Checkpoints, tenant: str, checkpoint_id: str) -> Checkpoint:
    found = await checkpoints.get(tenant, checkpoint_id)
    if found is None:
        raise ApiError(404, f"no checkpoint {checkpoint_id!r}"[:200], field="checkpoint_id")
    note(sandbox=found.sandbox_id)
    return found


def _problem(checkpoint_id: str, code: str, message: str) -> dict[str, Any]:
    return {"checkpoint_id": checkpoint_id, "code": code, "message": message}


def _document(checkpoint: Checkpoint) -> dict[str, Any]:
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
        "paths": checkpoint.paths,
        "without": checkpoint.without,
    }
