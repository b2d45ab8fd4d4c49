"""Routes that create, list, get and delete sandboxes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query, Request, Response
from sandlot_contract.statuses import Status

from sandlot_gateway.audit.call import note
from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.checkpoints.errors import NotRestorable
from sandlot_gateway.control.begin import begin_sandbox
from sandlot_gateway.control.checkpoints import checkpoints_of
from sandlot_gateway.control.errors import ApiError, body_errors, errors
from sandlot_gateway.control.field_types import RunName
from sandlot_gateway.control.models import (
    BulkDeleteRequest,
    BulkDeleteResponse,
    CreateRequest,
    Done,
    SandboxList,
    SandboxResponse,
)
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.present import (
    gateway_auth,
    is_old_prime,
    json_response,
    place_of,
    sandbox_document,
)
from sandlot_gateway.control.runs import admitted
from sandlot_gateway.control.services import (
    READY_HOLD,
    Have,
    Owned,
    Seen,
    Services,
    Who,
    appeared,
    images_refusal,
)
from sandlot_gateway.control.traced import traced_create
from sandlot_gateway.control.translate import spec_of
from sandlot_gateway.core.instances import PoolSpec
from sandlot_gateway.core.secret_refs import NOT_CONFIGURED
from sandlot_gateway.data.answers import Receive
from sandlot_gateway.e2b_ports import E2bPorts
from sandlot_gateway.e2b_template import E2bTemplate
from sandlot_gateway.engine.trouble import Pools
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox, Spec

router = APIRouter(prefix=PREFIX, tags=["sandboxes"])

UserAgent = Annotated[str, Header(alias="user-agent", include_in_schema=False)]


@router.post(
    "/sandbox",
    status_code=201,
    response_model=SandboxResponse,
    responses=body_errors(404, 409, 429, 501),
    summary="Create a sandbox",
)
async def create(
    body: CreateRequest, request: Request, have: Have, who: Who, user_agent: UserAgent = ""
) -> Response:
    """Create a sandbox; answer when it is RUNNING or has failed, or as PENDING after `wait_seconds`."""
    with traced_create(request, have.tracing, tenant=who.name) as about:
        sandbox = await create_sandbox(body, receive=request.receive, have=have, who=who)
        about["sandlot.sandbox.id"], about["sandlot.status"] = sandbox.id, sandbox.status
        document = sandbox_document(
            sandbox,
            user_agent=user_agent,
            place=place_of(sandbox, have),
            auth=gateway_auth(sandbox, have=have, request=request),
        )
        return json_response(document, status=201)


async def create_sandbox(
    body: CreateRequest,
    *,
    receive: Receive,
    have: Services,
    who: Tenant,
    e2b: E2bTemplate | None = None,
    ready_command: str | None = None,
    ports: E2bPorts | None = None,
    auto_pause: bool = False,
    check: Callable[[Spec], None] | None = None,
) -> Sandbox:
    """Create a sandbox and wait for it. Raises ApiError, and what `check` raises before anything is created.

    `receive` tells whether the caller is still there.
    """
    note(run=body.run_id or body.run)
    spec = await spec_for(body, have=have, who=who)
    if e2b is not None:
        changes = {"e2b": e2b, "ready_command": ready_command, "ports": ports, "auto_pause": auto_pause}
        spec = msgspec.structs.replace(spec, **changes)
    if check is not None:
        check(spec)
    hold = have.settings.wait_seconds if body.wait_seconds is None else body.wait_seconds
    return await begin_sandbox(
        spec, secrets=body.secrets or {}, hold=hold, receive=receive, have=have, who=who
    )


async def spec_for(body: CreateRequest, *, have: Services, who: Tenant) -> Spec:
    """Translate a request with what its key may use. Raises ApiError."""
    known = have.directory.by_key(who.name, body.idempotency_key) if body.idempotency_key else None
    if known is not None and body.run_id is not None and known.spec.run == body.run_id:
        epoch = known.spec.run_epoch  # a retry gets its sandbox, also once its run is over
    else:
        epoch = await admitted(body, have=have, who=who)
    if body.secret_refs and have.backend.secrets is None:
        raise ApiError(422, f"secret_refs: {NOT_CONFIGURED}", field="secret_refs")
    pool = have.backend.pool(body.pool) if body.pool is not None else None
    if pool is not None and not who.may_use(pool.owner):
        pool = None
    checkpoint = await _checkpoint(body.checkpoint_id, have=have, who=who)
    ready = have.supply.slots.warm
    spec = spec_of(
        body,
        pool=pool,
        pools=usable_pools(have, who),
        ready=lambda pool: ready.count_of(pool.name, pool.template, tenant=who.name),
        checkpoint=checkpoint,
        lays_images=have.backend.lays_images,
        gpus_keep_image=have.backend.gpus_keep_image,
        refusal=lambda image: images_refusal(image, have=have, who=who),
    )
    if epoch is not None:
        spec = msgspec.structs.replace(spec, run=body.run_id, run_epoch=epoch)
    return spec


def usable_pools(have: Services, who: Tenant) -> Iterator[PoolSpec]:
    """Yield the pools that a create without one may use; a create with a pool asks for none of them."""
    for status in have.backend.pools():
        spec = status.spec
        if who.may_use(spec.owner) and (spec.template.image or have.backend.lays_images):
            yield spec


async def _checkpoint(checkpoint_id: str | None, *, have: Services, who: Tenant) -> Checkpoint | None:
    if checkpoint_id is None:
        return None
    checkpoints = checkpoints_of(have, field="checkpoint_id")
    try:
        return await checkpoints.restorable(who.name, checkpoint_id)
    except NotRestorable as error:
        status = 404 if error.missing else 409
        raise ApiError(status, f"checkpoint_id: {error}", field="checkpoint_id") from error


@router.get(
    "/sandbox", response_model=SandboxList, responses=errors(422), summary="List sandboxes, newest first"
)
async def list_sandboxes(
    have: Have,
    who: Who,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    per_page: Annotated[int, Query(ge=1, le=1000)] = 50,
    labels: Annotated[list[str] | None, Query(description="May be repeated; all must match.")] = None,
    run: Annotated[RunName | None, Query(description="(Sandlot) Only sandboxes of this run.")] = None,
    group: Annotated[
        str | None, Query(max_length=128, description="(Sandlot) Only those of this group.")
    ] = None,
    image: Annotated[str | None, Query(max_length=1024, description="(Sandlot) A part of its name.")] = None,
    status: Annotated[str | None, Query(max_length=32)] = None,
    verdict: Annotated[str | None, Query(max_length=64, description="(Sandlot) How it ended.")] = None,
    is_active: Annotated[bool | None, Query(description="true: omit ended sandboxes.")] = None,
    team_id: Annotated[str | None, Query(description="Ignored.")] = None,
    user_id: Annotated[str | None, Query(description="Ignored.")] = None,
    overview: Annotated[
        bool,
        Query(
            description="(Sandlot) true: with queuePosition, estimatedWaitSeconds and pendingMessage, and without values that"
            " may be long: start command, variables, names of secrets, advanced configs."
        ),
    ] = False,
    user_agent: UserAgent = "",
) -> Response:
    await have.learn_claims(who)
    found = have.directory.list(
        tenant=who.name,
        page=page,
        per_page=per_page,
        labels=labels or (),
        run=run,
        group=group,
        image=image,
        status=status,
        verdict=verdict,
        active=is_active,
    )
    if overview:
        pools = cache(have.backend.pools)
        documents = [_overview(sandbox, have, pools) for sandbox in found.sandboxes]
    else:
        documents = [sandbox_document(sandbox, user_agent=user_agent) for sandbox in found.sandboxes]
    return json_response(
        {
            "sandboxes": documents,
            "total": found.total,
            "page": page,
            "per_page": per_page,
            "has_next": found.has_next,
        }
    )


def _overview(sandbox: Sandbox, have: Services, pools: Pools) -> dict[str, Any]:
    place = place_of(sandbox, have, pools) if sandbox.status is Status.PENDING else None
    document = sandbox_document(sandbox, user_agent="", place=place)
    without = {"environmentVars": {}, "secrets": {}, "secretRefs": {}}
    return {**document, **without, "startCommand": None, "advancedConfigs": None}


@router.delete(
    "/sandbox", response_model=BulkDeleteResponse, responses=body_errors(), summary="Delete many sandboxes"
)
async def bulk_delete(body: BulkDeleteRequest, have: Have, who: Who) -> Response:
    """Delete sandboxes and report on each; one that has ended already counts as deleted."""
    gone: list[Sandbox] = []
    failed: list[dict[str, str]] = []
    if body.sandbox_ids is not None:
        late = await appeared(body.sandbox_ids, have.directory, tenant=who.name)
        for sandbox_id in dict.fromkeys(body.sandbox_ids):
            sandbox = have.directory.of_tenant(sandbox_id, who.name)
            if sandbox is None:
                error = "not known to this gateway yet: try again" if sandbox_id in late else "not found"
                failed.append({"sandbox_id": sandbox_id, "error": error})
                continue
            gone.append(sandbox)
    else:
        await have.learn_claims(who)
        found = have.directory.list(tenant=who.name, labels=body.labels or (), active=True, per_page=1 << 30)
        gone = found.sandboxes
    for sandbox in gone:
        have.lifecycle.ends.delete(sandbox)
    succeeded = [sandbox.id for sandbox in gone]
    note(deleted=succeeded)
    await have.lifecycle.deleted_everywhere(*gone)
    message = f"deleted {len(succeeded)}, failed {len(failed)}"
    return json_response({"succeeded": succeeded, "failed": failed, "message": message})


@router.get(
    "/sandbox/{sandbox_id}", response_model=SandboxResponse, responses=errors(404), summary="Get one sandbox"
)
async def get(
    sandbox: Seen,
    have: Have,
    observe: Annotated[
        bool, Query(description="(Sandlot) true: it is no use of a sandbox whose creator has left.")
    ] = False,
    user_agent: UserAgent = "",
) -> Response:
    """Return a sandbox; for Prime's clients before 0.3, wait up to a second for a PENDING one."""
    if observe:
        user_agent = "sandlot"  # a page can show a start command of any form
    else:
        have.lifecycle.ends.orphans.used(sandbox.id)
    if is_old_prime(user_agent):
        await have.directory.changed(sandbox.id, timeout=READY_HOLD)
    place = place_of(sandbox, have)
    return json_response(sandbox_document(sandbox, user_agent=user_agent, place=place))


@router.delete(
    "/sandbox/{sandbox_id}", response_model=Done, responses=errors(404), summary="Delete one sandbox"
)
async def delete(sandbox: Owned, have: Have) -> Response:
    """Delete a sandbox; what runs in it may end after the answer. Deleting an ended sandbox succeeds.

    On Kubernetes, the answer waits until no other gateway can go on with the sandbox, for 2 s at most.
    """
    ended_now = have.lifecycle.ends.delete(sandbox)
    await have.lifecycle.deleted_everywhere(sandbox)
    message = "deleted" if ended_now else "the sandbox had already ended"
    return json_response({"success": True, "message": message})
