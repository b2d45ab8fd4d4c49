"""Routes that create, list and delete checkpoints of sandboxes; a create of a sandbox restores one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from sandlot_gateway.audit.call import note
from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.checkpoints.errors import Busy, StoreError
from sandlot_gateway.checkpoints.rules import StoreFull
from sandlot_gateway.checkpoints.service import Checkpoints
from sandlot_gateway.checkpoints.transfer import Selection
from sandlot_gateway.control.checkpoint_models import (
    CheckpointBatch,
    CheckpointBatchRequest,
    CheckpointList,
    CheckpointRequest,
    CheckpointResponse,
    CheckpointsDeleted,
    document,
    problem,
)
from sandlot_gateway.control.errors import ApiError, body_errors, errors, not_found, store_problem
from sandlot_gateway.control.field_types import SandboxIdInPath
from sandlot_gateway.control.models import Done
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.present import json_response
from sandlot_gateway.control.services import Have, Owned, Services, Who, appeared
from sandlot_gateway.sandboxes import Sandbox

router = APIRouter(prefix=PREFIX, tags=["checkpoints"])


def checkpoints_of(have: Services, *, field: str | None = None) -> Checkpoints:
    """Return the checkpoint service. Raises ApiError 501 if no store is configured."""
    if have.checkpoints is None:
        text = (
            "checkpoints need a directory or a bucket; set --checkpoint-dir or --checkpoint-s3 (chart values"
            " gateway.checkpoints.claim and gateway.checkpoints.s3)"
        )
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
            missing.append(problem(checkpoint_id, "NOT_FOUND", "no such checkpoint"))
        else:
            found.append(document(checkpoint))
    return json_response({"checkpoints": found, "errors": missing})


@router.get(
    "/sandbox/checkpoints",
    response_model=CheckpointList,
    responses=errors(501),
    summary="The tenant's checkpoints with a name, the first completed one first",
)
async def find(have: Have, who: Who, name: Annotated[str, Query(min_length=1, max_length=128)]) -> Response:
    found = await checkpoints_of(have).named(who.name, name)
    return json_response({"checkpoints": [document(one) for one in found]})


@router.get(
    "/sandbox/checkpoints/{checkpoint_id}",
    response_model=CheckpointResponse,
    responses=errors(404, 501),
    summary="Get one checkpoint",
)
async def get(checkpoint_id: str, have: Have, who: Who) -> Response:
    return json_response(document(await _known(checkpoints_of(have), who.name, checkpoint_id)))


@router.delete(
    "/sandbox/checkpoints/{checkpoint_id}",
    response_model=Done,
    responses=errors(404, 501),
    summary="Delete one checkpoint",
)
async def delete(checkpoint_id: str, have: Have, who: Who) -> Response:
    """Delete a checkpoint, also one that is still being written."""
    checkpoints = checkpoints_of(have)
    await checkpoints.delete(await _known(checkpoints, who.name, checkpoint_id))
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
    return json_response(document(checkpoint))


async def begin_checkpoint(
    sandbox: Sandbox,
    have: Services,
    *,
    body: CheckpointRequest | None = None,
    checkpoint_id: str | None = None,
    metadata: dict[str, str] | None = None,
    lasts: float | None = None,
) -> Checkpoint:
    """Start a checkpoint; `checkpoint_id`, `metadata` and `lasts` (seconds) are of the gateway itself. Raises ApiError."""
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
            lasts=lasts,
        )
    except Busy as error:
        raise ApiError(409, str(error)) from error
    except StoreFull as error:
        raise ApiError(507, str(error)) from error
    except StoreError as error:
        raise store_problem(error) from error
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
    sandbox_id: SandboxIdInPath,
    have: Have,
    who: Who,
    checkpoint_id: Annotated[
        str | None, Query(max_length=64, description="Return only this checkpoint.")
    ] = None,
) -> Response:
    """Return the checkpoints, also of a sandbox that has ended."""
    found = await _of_sandbox(checkpoints_of(have), have, tenant=who.name, sandbox_id=sandbox_id)
    wanted = [one for one in found if checkpoint_id is None or one.id == checkpoint_id]
    return json_response({"checkpoints": [document(one) for one in wanted]})


@router.delete(
    "/sandbox/{sandbox_id}/checkpoints",
    response_model=CheckpointsDeleted,
    responses=errors(404, 501),
    summary="Delete all checkpoints of a sandbox",
)
async def delete_all(sandbox_id: SandboxIdInPath, have: Have, who: Who) -> Response:
    """Delete all checkpoints, also one that is still being written."""
    checkpoints = checkpoints_of(have)
    deleted: list[str] = []
    note(deleted=deleted)
    for checkpoint in await _of_sandbox(checkpoints, have, tenant=who.name, sandbox_id=sandbox_id):
        await checkpoints.delete(checkpoint)
        deleted.append(checkpoint.id)
    return json_response({"deleted": deleted, "errors": []})


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
