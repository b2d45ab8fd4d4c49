"""Routes outside /api/v1: health and metrics."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response
from fastapi.security import HTTPAuthorizationCredentials
from pydantic import BaseModel

from sandlot_gateway.control.errors import ApiError, errors
from sandlot_gateway.control.present import json_response
from sandlot_gateway.control.services import Have, bearer, caller

router = APIRouter(tags=["health"])


class Health(BaseModel):
    status: str


@router.get("/healthz", response_model=Health, summary="The process lives")
async def healthz() -> Response:
    return json_response({"status": "ok"})


@router.get(
    "/readyz",
    response_model=Health,
    responses={503: {"model": Health}},
    summary="Recovery is over, no end has begun",
)
async def readyz(have: Have) -> Response:
    ready = have.is_ready()
    return json_response({"status": "ready" if ready else "not ready"}, status=200 if ready else 503)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **errors(403)},
    summary="Prometheus metrics",
)
async def metrics(
    have: Have, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
) -> Response:
    """Of all tenants together, with the names of all pools: for a key with the role operate."""
    if not have.settings.metrics_public:
        who = await caller(have, credentials)
        if not who.operates:
            text = (
                "/metrics tells of all tenants' pools: ask with a key that has the role operate"
                " (or the operator sets metrics_public)"
            )
            raise ApiError(403, text)
    return Response(have.metrics_text(), media_type="text/plain; version=0.0.4; charset=utf-8")
