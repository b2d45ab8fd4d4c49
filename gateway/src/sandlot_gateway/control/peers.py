"""What one gateway asks another: which instance has a sandbox of which no record can be read yet."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response
from fastapi.security import HTTPAuthorizationCredentials

from sandlot_gateway.control.errors import ApiError, not_found
from sandlot_gateway.control.present import json_response
from sandlot_gateway.control.services import Have, bearer

router = APIRouter(include_in_schema=False)


@router.get("/internal/sandboxes/{sandbox_id}/instance")
async def instance(
    sandbox_id: Annotated[str, Path(max_length=128)],
    have: Have,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
) -> Response:
    """Never waits: a gateway that waited for another, which waits for it, would keep callers for nothing."""
    if credentials is None or not have.tokens.is_peer(credentials.credentials):
        raise ApiError(401, "only another gateway may ask for this", headers={"www-authenticate": "Bearer"})
    sandbox = have.directory.get(sandbox_id)
    if sandbox is None or sandbox.status != "RUNNING" or sandbox.instance_id is None:
        raise not_found(sandbox_id)
    return json_response({"instance_id": sandbox.instance_id})
