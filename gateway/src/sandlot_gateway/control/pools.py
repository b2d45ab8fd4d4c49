"""Routes for warm pools and for the load of the whole machine."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from sandlot_contract.reuse import ReusePolicy
from sandlot_contract.template import Template

from sandlot_gateway import runtime_classes
from sandlot_gateway.control.errors import ApiError, body_errors, errors, not_kept
from sandlot_gateway.control.models import Done
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.pool_models import (
    PoolList,
    PoolRequest,
    PoolResponse,
    ReuseRequest,
    SlotCounts,
    Stats,
)
from sandlot_gateway.control.present import json_response
from sandlot_gateway.control.services import Have, Services, Who, images_refusal
from sandlot_gateway.control.translate import check_image
from sandlot_gateway.core.backend import BackendError, PoolChanged, Unavailable
from sandlot_gateway.core.instances import PoolSpec, PoolStatus, Reuse
from sandlot_gateway.core.slot import Phase
from sandlot_gateway.keys import Tenant, is_tenant

router = APIRouter(prefix=PREFIX, tags=["pools"])

_NAME = r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"
PoolName = Annotated[str, Path(pattern=_NAME)]

_PHASES = {name: Phase[name.upper()] for name in SlotCounts.model_fields}
_TRIES = 5  # attempts; each fails if another request changes the pool at that moment
_FIELDS = {"image": "image", "cpu": "cpu_cores", "memory": "memory_gb", "disk": "disk_size_gb"}


@router.get("/pools", response_model=PoolList, responses=errors(), summary="(Sandlot) Warm pools")
async def list_pools(have: Have, who: Who) -> Response:
    """Return shared pools and those of the key's tenant; with the role operate, all pools."""
    return json_response({"pools": _pools(have, who)})


@router.put(
    "/pools/{name}",
    response_model=PoolResponse,
    responses=body_errors(403),
    summary="(Sandlot) Create or change a pool",
)
async def put_pool(name: PoolName, body: PoolRequest, have: Have, who: Who) -> Response:
    """Create or change a pool; instances start in the background. Only the role operate reaches other tenants' pools.

    Fields that the body omits or cannot express (autoscaling) keep their value. With the role use, a tenant has up to
    64 pools, and its quotas limit what they keep warm.
    """
    for _ in range(_TRIES):
        old = have.backend.pool(name)
        spec = _changed(old, name=name, body=body, have=have, who=who)
        if spec.template.image and (old is None or body.image is not None):
            check_image(
                spec.template.image,
                field="image",
                refusal=lambda image: images_refusal(image, have=have, who=who),
            )
        try:
            with have.pool_limits.changing(spec):
                await have.backend.set_pool(spec)
        except PoolChanged:
            continue  # changed meanwhile, perhaps to another tenant: decide again
        except Unavailable as error:
            raise not_kept(error) from error
        except BackendError as error:
            field = _FIELDS.get(error.field or "", error.field or "image")
            raise ApiError(422, f"{field}: {error}", field=field) from error
        return json_response(_find(have, name))
    text = f"pool {name!r} is being changed by other requests; try again"
    raise ApiError(503, text, headers={"Retry-After": "1"})


@router.delete(
    "/pools/{name}",
    response_model=Done,
    responses=errors(403, 404, 422),
    summary="(Sandlot) Delete a pool",
)
async def delete_pool(name: PoolName, have: Have, who: Who) -> Response:
    """Delete a pool; sandboxes claimed from it keep running."""
    pool = have.backend.pool(name)
    if pool is not None and not who.operates:
        if not who.may_use(pool.owner):
            raise ApiError(404, f"no pool {name!r}")
        if pool.owner is None:
            raise _shared(name)
    try:
        found = await have.backend.delete_pool(name)
    except BackendError as error:
        raise not_kept(error) from error
    if not found:
        raise ApiError(404, f"no pool {name!r}")
    return json_response({"success": True, "message": "deleted"})


@router.get("/stats", response_model=Stats, responses=errors(422), summary="(Sandlot) Counts and usage")
async def stats(
    have: Have,
    who: Who,
    usage: Annotated[bool, Query(description="(Sandlot) false: without the usage of each sandbox.")] = True,
) -> Response:
    machine = have.backend.stats()
    used_by: list[dict[str, Any]] = []
    for instance_id, used in machine.get("usage", {}).items() if usage else ():
        owner = have.supply.slots.owner(instance_id)
        sandbox = have.directory.get(owner) if owner is not None else None
        if sandbox is not None and sandbox.tenant == who.name:
            used_by.append({"sandbox_id": sandbox.id, "name": sandbox.spec.name, **used})
    return json_response(
        {
            "sandboxes": dict(have.directory.statuses(who.name)),
            "verdicts": dict(have.directory.verdicts(who.name)),
            "pools": _pools(have, who),
            "queue": {
                "waiting": have.supply.waiting,
                "starting": have.supply.starting,
                "ready": len(have.supply.slots.warm),
            },
            "usage": used_by,
            "machine": {name: value for name, value in machine.items() if name != "usage"},
        }
    )


def _find(have: Services, name: str) -> dict[str, Any]:
    for status in have.backend.pools():
        if status.spec.name == name:
            phases = have.supply.slots.phases().get(name, Counter())
            return _document(status, have=have, phases=phases)
    raise ApiError(404, f"no pool {name!r}: another request has just deleted it")


def _changed(old: PoolSpec | None, *, name: str, body: PoolRequest, have: Services, who: Tenant) -> PoolSpec:
    """Return the pool that the body describes. Raises ApiError."""
    owner = _owner(name, body, old=old, who=who)
    previous = old
    if old is None:
        if body.size is None:
            raise ApiError(
                422, f"size: pool {name!r} does not exist yet: give the size of a new one", field="size"
            )
        template = Template(image="" if have.backend.pools_without_image else "host")
        old = PoolSpec(name, template, size=body.size)
    said = {
        "image": body.image,
        "cpu": body.cpu_cores,
        "memory": None if body.memory_gb is None else round(body.memory_gb * (1 << 30)),
        "disk": None if body.disk_size_gb is None else round(body.disk_size_gb * (1 << 30)),
        "pids": body.pids,
        "gpu_count": body.gpu_count,
    }
    changes: dict[str, Any] = {field: value for field, value in said.items() if value is not None}
    template = replace(
        old.template,
        **changes,
        gpu_type=_gpu_type(old.template, body),
        runtime_class=_runtime_class(old.template, body, have=have),
    )
    spec = replace(old, template=template, owner=owner, reuse=_reuse(old.reuse, body.reuse))
    if body.size is not None:
        spec = replace(spec, size=body.size, bounds=None)
    if body.size is not None or changes.keys() & {"cpu", "memory", "gpu_count"}:
        before = None if previous is None or previous.owner != owner else previous
        have.pool_limits.check(spec, before=before, who=who)
    return spec


def _gpu_type(old: Template, body: PoolRequest) -> str | None:
    """Return the pool's new type of GPU. Raises ApiError if it would have one without GPUs."""
    count = old.gpu_count if body.gpu_count is None else body.gpu_count
    if body.gpu_type and not count:
        raise ApiError(422, "gpu_type: set gpu_count, too, or leave it out", field="gpu_type")
    kind = old.gpu_type if body.gpu_type is None else body.gpu_type or None
    return kind if count else None


def _runtime_class(old: Template, body: PoolRequest, *, have: Services) -> str | None:
    """Return the pool's new RuntimeClass. Raises ApiError for one that it does not have, and may not get."""
    name = old.runtime_class if body.runtime_class is None else body.runtime_class or None
    # The local backend itself refuses those that it does not have.
    if name is not None and name != old.runtime_class and have.settings.backend != "local":
        why = runtime_classes.refusal(name, allowed=have.settings.runtime_classes)
        if why is not None:
            raise ApiError(422, f"runtime_class: {why}", field="runtime_class")
    return name


def _reuse(old: Reuse, body: ReuseRequest | None) -> Reuse:
    if body is None:
        return old
    return Reuse(
        ReusePolicy(body.policy) if body.policy is not None else old.policy,
        body.max_uses if body.max_uses is not None else old.max_uses,
        body.max_age if body.max_age is not None else old.max_age,
    )


def _owner(name: str, body: PoolRequest, *, old: PoolSpec | None, who: Tenant) -> str | None:
    """Return the pool's new owner. Raises ApiError if the key may not set it, or not change this pool."""
    if body.owner and not is_tenant(body.owner):
        raise ApiError(422, "owner: must be empty or match [A-Za-z0-9._-]{1,64}", field="owner")
    if who.operates:
        if body.owner is None:
            return old.owner if old is not None else None
        return body.owner or None
    if old is not None and old.owner is None:
        raise _shared(name)
    if old is not None and not who.may_use(old.owner):
        raise ApiError(403, f"name: the name {name!r} is in use; choose another", field="name")
    if body.owner is not None and body.owner != who.name:
        text = (
            f"owner: this key may only create pools of its tenant {who.name!r}; others need the role operate"
        )
        raise ApiError(403, text, field="owner")
    return who.name


def _shared(name: str) -> ApiError:
    return ApiError(
        403, f"pool {name!r} is shared: only a key with the role operate may change it; create your own"
    )


def _pools(have: Services, who: Tenant) -> list[dict[str, Any]]:
    phases = have.supply.slots.phases()
    return [
        _document(status, have=have, phases=phases.get(status.spec.name, Counter()))
        for status in have.backend.pools()
        if who.operates or who.may_use(status.spec.owner)
    ]


def _document(status: PoolStatus, *, have: Services, phases: Counter[Phase]) -> dict[str, Any]:
    template, bounds = status.spec.template, status.spec.bounds
    return {
        "name": status.spec.name,
        "image": template.image,
        "owner": status.spec.owner,
        "size": status.spec.size,
        "min_size": bounds[0] if bounds is not None else None,
        "max_size": bounds[1] if bounds is not None else None,
        "ready": have.supply.slots.warm.count(status.spec.name),
        "starting": status.starting + sum(status.resetting.values()),
        "slots": {name: phases[phase] for name, phase in _PHASES.items()},
        "failures": status.failures,
        "message": status.message,
        "cpu_cores": template.cpu,
        "memory_gb": template.memory / (1 << 30),
        "disk_size_gb": template.disk / (1 << 30),
        "pids": template.pids,
        "gpu_count": template.gpu_count,
        "gpu_type": template.gpu_type,
        "runtime_class": template.runtime_class,
        "reuse": asdict(status.spec.reuse),
    }
