"""Routes of one sandbox: its token, the reason it failed, its logs, and a reset."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel
from sandlot_contract.statuses import Status

from sandlot_gateway.control.errors import ApiError, errors
from sandlot_gateway.control.field_types import WireStatus
from sandlot_gateway.control.models import GatewayAuth
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.present import error_message, gateway_auth, json_response
from sandlot_gateway.control.services import Have, Owned
from sandlot_gateway.data.answers import TOKEN_REJECTED
from sandlot_gateway.engine.errors import ResetFailed
from sandlot_gateway.sidecars import SidecarError

router = APIRouter(prefix=PREFIX, tags=["sandboxes"])


class ErrorContext(BaseModel):
    status: WireStatus | None
    errorType: str | None
    errorMessage: str | None
    verdict: str | None
    exitCode: int | None


class Logs(BaseModel):
    logs: str


class ResetResponse(BaseModel):
    """The new generation; `proof` is the sidecar's comparison with a fresh sandbox."""

    success: bool
    generation: int
    took_ms: float
    equal: bool
    proof: dict[str, Any]


@router.post(
    "/sandbox/{sandbox_id}/auth",
    response_model=GatewayAuth,
    responses=errors(404),
    summary="A token for the data plane",
)
async def auth(sandbox: Owned, request: Request, have: Have) -> Response:
    """Return a token, also for an ended sandbox: clients derive typed errors from the data plane's responses."""
    return json_response(gateway_auth(sandbox, have=have, request=request))


@router.get(
    "/sandbox/{sandbox_id}/error-context",
    response_model=ErrorContext,
    responses=errors(404),
    summary="The reason why a sandbox does not run",
)
async def error_context(sandbox: Owned) -> Response:
    return json_response(
        {
            "status": sandbox.status,
            "errorType": sandbox.error_type,
            "errorMessage": error_message(sandbox),
            "verdict": sandbox.verdict,
            "exitCode": sandbox.exit_code,
        }
    )


@router.get(
    "/sandbox/{sandbox_id}/logs",
    response_model=Logs,
    responses=errors(404, 422, 502),
    summary="The start command's output",
)
async def logs(
    sandbox: Owned,
    have: Have,
    stream: Annotated[Literal["stdout", "stderr", "all"], Query()] = "all",
    tail: Annotated[int, Query(ge=0, le=1 << 20, description="Bytes from the end.")] = 1 << 20,
) -> Response:
    """Return the output so far; empty if the sandbox is not running."""
    route = have.directory.find(sandbox.id)
    if route is None or route.status is not Status.RUNNING:
        return json_response({"logs": ""})
    try:
        answer = await have.sidecars.get(route, "/v1/logs", {"stream": stream, "tail": tail})
    except SidecarError as error:
        raise ApiError(502, f"the sandbox did not answer: {error}; try again") from error
    if answer.status != 200:
        problem = (
            TOKEN_REJECTED if answer.status == 401 else f"the sandbox answered with status {answer.status}"
        )
        raise ApiError(502, problem)
    return json_response({"logs": answer.body.decode("utf-8", "replace")})


@router.post(
    "/sandbox/{sandbox_id}/reset",
    response_model=ResetResponse,
    responses=errors(404, 409, 502),
    summary="(Sandlot) Reset a sandbox for the same owner",
)
async def reset(sandbox: Owned, have: Have) -> Response:
    """Kill all processes, discard all writes and verify that the sandbox equals a fresh one. Its ops are lost."""
    try:
        told = await have.lifecycle.reset(sandbox)
    except ResetFailed as error:
        raise ApiError(409 if error.nothing_done else 502, f"{error.code}: {error}") from error
    return json_response(
        {
            "success": True,
            "generation": int(told.get("generation") or 0),
            "took_ms": float(told.get("took_ms") or 0.0),
            "equal": True,
            "proof": told.get("proof") or {},
        }
    )
