"""Routes for other gateways: where a sandbox is or how it ended, which one has an idempotency key, and news.

Also what this one has counted of a run.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.security import HTTPAuthorizationCredentials
from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from sandlot_gateway.control.errors import ApiError, not_found
from sandlot_gateway.control.field_types import RunName
from sandlot_gateway.control.present import NO_STORE, json_response
from sandlot_gateway.control.services import Have, Services, bearer
from sandlot_gateway.core.owners import KeyQuestion
from sandlot_gateway.core.runs import RunId
from sandlot_gateway.credentials import KEYS_PATH, NEWS_PATH

router = APIRouter(include_in_schema=False)


@router.get("/internal/sandboxes/{sandbox_id}/instance")
async def instance(
    sandbox_id: Annotated[SandboxId, Path(max_length=128)],
    have: Have,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
) -> Response:
    """Return the sandbox's instance or end without waiting: two gateways that wait for each other block callers."""
    check_peer(credentials, have=have)
    sandbox = have.directory.get(sandbox_id)
    if sandbox is not None and not sandbox.live:
        return json_response({"end": asdict(sandbox.recorded_end())})
    if sandbox is None:
        raise not_found(sandbox_id)
    if sandbox.status is not Status.RUNNING or sandbox.instance_id is None:
        return json_response({"pending": True})
    return json_response({"instance_id": sandbox.instance_id})


@router.post(NEWS_PATH, status_code=204)
async def news(
    request: Request,
    have: Have,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
) -> Response:
    """Apply the ends and resets that another gateway tells."""
    check_peer(credentials, have=have)
    if not have.backend.told(await request.body()):
        raise ApiError(400, "the news cannot be read: do all gateways have one version?")
    return Response(status_code=204)


@router.get("/internal/claims")
async def young_claims(
    have: Have,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
    tenant: Annotated[str, Query(max_length=64)],
) -> Response:
    """Return the tenant's new sandboxes that run, with their instances: the gateway that asks may not know them."""
    check_peer(credentials, have=have)
    young = have.directory.young(tenant)
    return json_response({"instances": {sandbox.id: sandbox.instance_id for sandbox in young}})


@router.get(KEYS_PATH)
async def holder_of_key(
    have: Have,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
    tenant: Annotated[str, Query(max_length=64)],
    key: Annotated[str, Query(max_length=128)],
    sandbox_id: Annotated[SandboxId, Query(max_length=128)],
    gateway: Annotated[str, Query(max_length=64)],
    waits: bool = True,
) -> Response:
    """Return the sandbox of an idempotency key without waiting."""
    check_peer(credentials, have=have)
    holder = have.lifecycle.following.keyed.answer(KeyQuestion(tenant, key, sandbox_id, gateway, waits=waits))
    return json_response({"holder": None if holder is None else asdict(holder)})


@router.get("/internal/runs/{run_id}/counts")
async def run_counts(
    run_id: Annotated[RunName, Path()],
    have: Have,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
    tenant: Annotated[str, Query(max_length=64)],
) -> Response:
    """Return the commands of a run that this gateway forwarded, and the ends of sandboxes that it claimed."""
    check_peer(credentials, have=have)
    counted = have.runs.tally.of((tenant, RunId(run_id)))
    return Response(msgspec.json.encode(counted), media_type="application/json", headers=NO_STORE)


def check_peer(credentials: HTTPAuthorizationCredentials | None, *, have: Services) -> None:
    """Raise ApiError unless another gateway sent these credentials."""
    if credentials is None or not have.tokens.is_peer(credentials.credentials):
        raise ApiError(401, "this route is for other gateways only", headers={"www-authenticate": "Bearer"})
