"""Routes that expose ports of a sandbox to the outside."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from sandlot_contract.ids import SandboxId

from sandlot_gateway.audit.call import note
from sandlot_gateway.control.errors import ApiError, body_errors, errors, not_kept
from sandlot_gateway.control.field_types import Port, Strict
from sandlot_gateway.control.models import Done
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.present import base_url, iso, json_response
from sandlot_gateway.control.services import Have, Owned, Services, Who
from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.data.exposure import ExposeError, Exposure, ExposureProtocol

router = APIRouter(prefix=PREFIX, tags=["exposures"])


class ExposeRequest(Strict):
    port: Port = Field(description="Port in the sandbox.")
    name: str | None = Field(None, max_length=50)
    protocol: ExposureProtocol | None = Field(None, description="Default HTTP.")


class ExposeResponse(BaseModel):
    exposure_id: str
    sandbox_id: SandboxId
    port: int
    name: str | None
    protocol: ExposureProtocol
    url: str = Field(description="For TCP tcp://HOST:PORT, for UDP udp://HOST:PORT.")
    tls_socket: str = Field(description="HOST:PORT; this server does not use TLS for it.")
    external_port: int | None = Field(description="TCP and UDP only.")
    external_endpoint: str | None = Field(description="TCP and UDP only: HOST:PORT.")
    created_at: str


class ExposeList(BaseModel):
    exposures: list[ExposeResponse]


@router.get(
    "/sandbox/expose/all",
    response_model=ExposeList,
    responses=errors(),
    summary="All exposures of the tenant",
)
async def list_all(request: Request, have: Have, who: Who) -> Response:
    return _listing(have.exposures.list(who.name), have=have, request=request)


@router.post(
    "/sandbox/{sandbox_id}/expose",
    response_model=ExposeResponse,
    responses=body_errors(404, 409),
    summary="Expose a port",
)
async def expose(sandbox: Owned, body: ExposeRequest, request: Request, have: Have) -> Response:
    if not sandbox.live:
        raise ApiError(409, f"the sandbox has ended: {sandbox.verdict}")
    try:
        exposure = await have.exposures.add(
            sandbox.id, sandbox.tenant, body.port, body.name, body.protocol or "HTTP"
        )
    except ExposeError as error:
        if error.field is None:
            raise ApiError(409, str(error)) from error
        raise ApiError(422, str(error), field=error.field) from error
    except BackendError as error:
        raise not_kept(error) from error
    note(credential=exposure.id)
    return json_response(_document(exposure, have=have, request=request))


@router.get(
    "/sandbox/{sandbox_id}/expose",
    response_model=ExposeList,
    responses=errors(404),
    summary="Exposures of one sandbox",
)
async def list_one(sandbox: Owned, request: Request, have: Have) -> Response:
    found = have.exposures.list(sandbox.tenant, sandbox_id=sandbox.id)
    return _listing(found, have=have, request=request)


@router.delete(
    "/sandbox/{sandbox_id}/expose/{exposure_id}",
    response_model=Done,
    responses=errors(404),
    summary="Stop exposing a port",
)
async def remove(sandbox: Owned, exposure_id: str, have: Have) -> Response:
    known = await have.exposures.found(exposure_id)
    if known is None or known.sandbox_id != sandbox.id:
        raise ApiError(404, "no such exposure: it was removed, or its sandbox has ended")
    try:
        await have.exposures.remove(exposure_id, sandbox.tenant)
    except BackendError as error:
        raise not_kept(error) from error
    return json_response({"success": True, "message": "removed"})


def _listing(exposures: list[Exposure], *, have: Services, request: Request) -> Response:
    return json_response(
        {"exposures": [_document(exposure, have=have, request=request) for exposure in exposures]}
    )


def _document(exposure: Exposure, *, have: Services, request: Request) -> dict[str, Any]:
    base = base_url(have=have, request=request)
    host = request.url.hostname or exposure.listen_host or "127.0.0.1"
    host = f"[{host}]" if ":" in host else host
    endpoint = f"{host}:{exposure.listen_port}" if exposure.listen_port is not None else None
    return {
        "exposure_id": exposure.id,
        "sandbox_id": exposure.sandbox_id,
        "port": exposure.port,
        "name": exposure.name,
        "protocol": exposure.protocol,
        "url": f"{exposure.protocol.lower()}://{endpoint}" if endpoint else f"{base}{exposure.path}",
        "tls_socket": endpoint or base.partition("://")[2],
        "external_port": exposure.listen_port,
        "external_endpoint": endpoint,
        "created_at": iso(exposure.created_at),
    }
