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


@router.get("/healthz", response_model=Health, summary="Liveness: the process runs")
async def healthz() -> Response:
    return json_response({"status": "ok"})


@router.get(
    "/readyz",
    response_model=Health,
    responses={503: {"model": Health}},
    summary="Readiness: recovery is complete, shutdown has not begun",
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
    """Return the metrics of all tenants, with the names of all pools; needs a key with the role operate."""
    if not have.settings.metrics_public:
        who = await caller(have, credentials)
        if not who.operates:
            text = (
                "/metrics names all tenants' pools: send a key with the role operate"
                " (or set metrics_public as the operator)"
            )
            raise ApiError(403, text)
    return Response(have.metrics_text(), media_type="text/plain; version=0.0.4; charset=utf-8")
