"""Routes about warm pools and about what the whole machine is doing."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, Field

from sandlot_gateway.backends.base import PIDS, BackendError, PoolSpec, PoolStatus, Template
from sandlot_gateway.control.errors import ApiError, body_errors, errors
from sandlot_gateway.control.models import Done, Pids, PoolSize, Strict, Text
from sandlot_gateway.control.present import json_response
from sandlot_gateway.control.services import Have, Services, Who

router = APIRouter(tags=["pools"])

_NAME = r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"
PoolName = Annotated[str, Path(pattern=_NAME)]

_FIELDS = {"image": "image", "cpu": "cpu_cores", "memory": "memory_gb", "disk": "disk_size_gb"}


class PoolRequest(Strict):
    image: Text = Field("host", min_length=1, max_length=1024)
    size: PoolSize = Field(description="Warm instances to keep.")
    cpu_cores: float = Field(1.0, ge=0.1, le=256)
    memory_gb: float = Field(1.0, ge=0.03, le=4096)
    disk_size_gb: float = Field(5.0, ge=0.01, le=16384)
    pids: Pids = PIDS


class PoolResponse(BaseModel):
    name: str
    image: str
    size: int
    ready: int = Field(description="Can be claimed now.")
    starting: int
    failures: int
    message: str | None = Field(description="Why the last start failed.")
    cpu_cores: float
    memory_gb: float
    disk_size_gb: float
    pids: int


class PoolList(BaseModel):
    pools: list[PoolResponse]


class Queue(BaseModel):
    waiting: int = Field(description="Creates that wait for an instance.")
    starting: int = Field(description="Cold starts in flight.")
    ready: int = Field(description="Warm instances nobody owns, of all pools.")


class Stats(BaseModel):
    """What `sandlot top` shows. `machine` is the backend's own."""

    sandboxes: dict[str, int] = Field(description="The tenant's sandboxes by status.")
    pools: list[PoolResponse]
    queue: Queue
    usage: list[dict[str, Any]] = Field(description="Of the tenant's sandboxes, where the backend knows it.")
    machine: dict[str, Any]


@router.get("/pools", response_model=PoolList, responses=errors(), summary="(Sandlot) Warm pools")
async def list_pools(have: Have, who: Who) -> Response:
    return json_response({"pools": _pools(have)})


@router.put(
    "/pools/{name}",
    response_model=PoolResponse,
    responses=body_errors(),
    summary="(Sandlot) Make or change a pool",
)
async def put_pool(name: PoolName, body: PoolRequest, have: Have, who: Who) -> Response:
    """Answers at once; the instances get ready behind it."""
    template = Template(
        image=body.image,
        cpu=body.cpu_cores,
        memory=round(body.memory_gb * (1 << 30)),
        disk=round(body.disk_size_gb * (1 << 30)),
        pids=body.pids,
    )
    try:
        await have.backend.set_pool(PoolSpec(name=name, template=template, size=body.size))
    except BackendError as error:
        field = _FIELDS.get(error.field or "", error.field or "image")
        raise ApiError(422, f"{field}: {error}", field=field) from error
    return json_response(_find(have, name))


@router.delete(
    "/pools/{name}", response_model=Done, responses=errors(404, 422), summary="(Sandlot) Take a pool away"
)
async def delete_pool(name: PoolName, have: Have, who: Who) -> Response:
    """Sandboxes that came from it stay."""
    if not await have.backend.delete_pool(name):
        raise ApiError(404, f"no pool {name!r}")
    return json_response({"success": True, "message": "deleted"})


@router.get("/stats", response_model=Stats, responses=errors(), summary="(Sandlot) Counts and usage")
async def stats(have: Have, who: Who) -> Response:
    machine = have.backend.stats()
    usage: list[dict[str, Any]] = []
    for instance_id, used in machine.get("usage", {}).items():
        sandbox = have.directory.by_instance(instance_id)
        if sandbox is not None and sandbox.tenant == who.name:
            usage.append({"sandbox_id": sandbox.id, "name": sandbox.spec.name, **used})
    return json_response(
        {
            "sandboxes": dict(have.directory.statuses(who.name)),
            "pools": _pools(have),
            "queue": {
                "waiting": have.supply.waiting,
                "starting": have.supply.starting,
                "ready": len(have.supply.ready),
            },
            "usage": usage,
            "machine": {name: value for name, value in machine.items() if name != "usage"},
        }
    )


def _find(have: Services, name: str) -> dict[str, Any]:
    for status in have.backend.pools():
        if status.spec.name == name:
            return _document(status, have=have)
    raise ApiError(404, f"no pool {name!r}")


def _pools(have: Services) -> list[dict[str, Any]]:
    return [_document(status, have=have) for status in have.backend.pools()]


def _document(status: PoolStatus, *, have: Services) -> dict[str, Any]:
    template = status.spec.template
    return {
        "name": status.spec.name,
        "image": template.image,
        "size": status.spec.size,
        "ready": have.supply.ready.count(status.spec.name),
        "starting": status.starting,
        "failures": status.failures,
        "message": status.message,
        "cpu_cores": template.cpu,
        "memory_gb": template.memory / (1 << 30),
        "disk_size_gb": template.disk / (1 << 30),
        "pids": template.pids,
    }
