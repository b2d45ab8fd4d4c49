"""Routes outside /api/v1: health, metrics, and the webhooks of sidecars."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.security import HTTPAuthorizationCredentials
from pydantic import BaseModel

from sandlot_gateway.control.errors import ApiError, error_response, errors
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
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **errors()},
    summary="Prometheus metrics",
)
async def metrics(
    have: Have, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
) -> Response:
    if not have.settings.metrics_public:
        await caller(have, credentials)
    return Response(have.metrics_text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.post("/internal/sidecar", include_in_schema=False)
async def webhook(
    request: Request,
    have: Have,
    x_sandlot_instance: Annotated[str, Header(max_length=128)],
    x_sandlot_signature: Annotated[str, Header(max_length=128)],
) -> Response:
    status = have.webhooks.receive(
        instance_id=x_sandlot_instance, signature=x_sandlot_signature, body=await request.body()
    )
    if status == 200:
        return json_response({})
    if status == 410:
        return error_response(410, "nobody knows this instance")
    if status == 503:
        raise ApiError(503, "nothing is known of this instance yet", headers={"retry-after": "1"})
    raise ApiError(status, "not a webhook of this instance")
