"""Routes for the leases of training runs: begin or take over, renew, end; and the check of a create that names one."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from sandlot_gateway.audit.call import note
from sandlot_gateway.control.errors import ApiError, body_errors, errors, not_kept
from sandlot_gateway.control.field_types import RunName
from sandlot_gateway.control.models import CreateRequest
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.present import iso, json_response
from sandlot_gateway.control.run_models import RunBegin, RunList, RunRenewal, RunResponse
from sandlot_gateway.control.services import Have, Services, Who
from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.core.runs import Lease, RunId, RunRefused, RunRequest, RunUnknown
from sandlot_gateway.engine.run_limit import MOST, TooManyRuns
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox, Spec

router = APIRouter(prefix=PREFIX, tags=["runs"])

RunIdText = Annotated[RunName, Path()]


@router.put(
    "/runs/{run_id}",
    response_model=RunResponse,
    responses=body_errors(409),
    summary="(Sandlot) Begin, resume or take over a run",
)
async def begin_run(run_id: RunIdText, body: RunBegin, have: Have, who: Who) -> Response:
    """Take the lease of a run; sandboxes that name the run end when nobody renews it for its grace."""
    note(run=run_id)
    asked = RunRequest(
        holder=body.holder,
        grace=body.grace_seconds,
        name=body.name,
        metadata=body.metadata or {},
        take_over=bool(body.take_over),
        end_sandboxes=bool(body.end_sandboxes),
        weight=body.weight,
        priority=body.priority,
    )
    try:
        lease = await have.runs.begin(who.name, RunId(run_id), asked)
    except TooManyRuns as error:
        text = f"tenant {who.name!r} has {MOST} active runs: end one, or use one run for all sandboxes of a training"
        raise ApiError(409, text, extra={"error": "too_many_runs"}) from error
    except (RunRefused, RunUnknown, BackendError) as error:
        raise refused(error) from error
    return json_response(run_document(lease, counts_of(have, who.name, run_id)))


@router.post(
    "/runs/{run_id}/renew",
    response_model=RunResponse,
    responses=body_errors(404, 409),
    summary="(Sandlot) Renew a run",
)
async def renew_run(run_id: RunIdText, body: RunRenewal, have: Have, who: Who) -> Response:
    """Keep a run and its sandboxes for another grace; any process may do it that knows the epoch of its holder."""
    note(run=run_id)
    try:
        lease = await have.runs.renew(who.name, RunId(run_id), body.epoch)
    except (RunRefused, RunUnknown, BackendError) as error:
        raise refused(error) from error
    # Without counts: it is called every few seconds, and they take a look at each sandbox of the tenant.
    return json_response(run_document(lease, (Counter(), Counter())))


@router.delete(
    "/runs/{run_id}",
    response_model=RunResponse,
    responses=errors(404, 409),
    summary="(Sandlot) End a run with its sandboxes",
)
async def end_run(
    run_id: RunIdText,
    have: Have,
    who: Who,
    epoch: Annotated[int | None, Query(ge=1, description="Only if this holder still has it.")] = None,
) -> Response:
    """End a run; its sandboxes are deleted. One that is over already stays as it is."""
    note(run=run_id)
    live = have.directory.list(tenant=who.name, run=run_id, active=True, per_page=1 << 30).sandboxes
    try:
        lease = await have.runs.finish(who.name, RunId(run_id), epoch)
    except (RunRefused, RunUnknown, BackendError) as error:
        raise refused(error) from error
    # The report that a trainer asks for next has the ends that other gateways count.
    await have.lifecycle.deleted_everywhere(*(sandbox for sandbox in live if not sandbox.live))
    return json_response(run_document(lease, counts_of(have, who.name, run_id)))


@router.get("/runs", response_model=RunList, responses=errors(), summary="(Sandlot) Runs, newest first")
async def list_runs(have: Have, who: Who) -> Response:
    """Return the tenant's runs; those that are over, for an hour."""
    await have.learn_claims(who)
    try:
        found = await have.runs.of_tenant(who.name)
    except BackendError as error:
        raise not_kept(error) from error
    counts = {str(one.id): (Counter[str](), Counter[str]()) for one in found}
    for sandbox in have.directory.list(tenant=who.name, per_page=1 << 30).sandboxes:
        if (own := counts.get(sandbox.spec.run or "")) is not None:
            _count(sandbox, *own)
    return json_response({"runs": [run_document(one, counts[one.id]) for one in found]})


@router.get("/runs/{run_id}", response_model=RunResponse, responses=errors(404), summary="(Sandlot) One run")
async def get_run(run_id: RunIdText, have: Have, who: Who) -> Response:
    note(run=run_id)
    await have.learn_claims(who)
    try:
        lease = await have.runs.find(who.name, RunId(run_id))
    except (RunUnknown, BackendError) as error:
        raise refused(error) from error
    return json_response(run_document(lease, counts_of(have, who.name, run_id)))


async def admitted(body: CreateRequest, *, have: Services, who: Tenant) -> int | None:
    """Return the epoch of the run with whose lease a new sandbox ends, or None without one. Raises ApiError."""
    if body.run_id is None:
        if body.run_epoch is not None:
            raise ApiError(422, "run_epoch: needs run_id, the run that it is of", field="run_epoch")
        return None
    if body.run is not None and body.run != body.run_id:
        text = f"run: must be {body.run_id!r}, which run_id names, or omitted"
        raise ApiError(422, text, field="run")
    try:
        return await have.runs.admit(who.name, RunId(body.run_id), body.run_epoch)
    except (RunRefused, RunUnknown, BackendError) as error:
        raise refused(error, field="run_id") from error


async def admitted_again(spec: Spec, *, have: Services, who: Tenant) -> None:
    """Check that the run with whose lease a sandbox ends is still active, for another one like it. Raises ApiError."""
    if spec.run is None or spec.run_epoch is None:
        return
    try:
        await have.runs.admit(who.name, RunId(spec.run), spec.run_epoch)
    except (RunRefused, RunUnknown, BackendError) as error:
        raise refused(error) from error


def refused(error: RunRefused | RunUnknown | BackendError, *, field: str | None = None) -> ApiError:
    named = f"{field}: " if field is not None else ""
    if isinstance(error, RunRefused):
        return ApiError(409, f"{named}{error}", field=field, extra={"error": str(error.code)})
    if isinstance(error, RunUnknown):
        text = f"{named}no run {error}: it never began, or was over more than an hour ago; begin it first"
        return ApiError(404, text, field=field, extra={"error": "run_unknown"})
    return not_kept(error)


def counts_of(have: Services, tenant: str, run_id: str) -> tuple[Counter[str], Counter[str]]:
    """Count a run's sandboxes by status, and its ended ones by verdict."""
    counts = Counter[str](), Counter[str]()
    for sandbox in have.directory.list(tenant=tenant, run=run_id, per_page=1 << 30).sandboxes:
        _count(sandbox, *counts)
    return counts


def _count(sandbox: Sandbox, statuses: Counter[str], verdicts: Counter[str]) -> None:
    statuses[str(sandbox.status)] += 1
    if sandbox.verdict is not None:
        verdicts[sandbox.verdict] += 1


def run_document(lease: Lease, counts: tuple[Counter[str], Counter[str]]) -> dict[str, Any]:
    sandboxes, verdicts = counts
    return {
        "id": lease.id,
        "name": lease.name,
        "state": lease.state,
        "epoch": lease.epoch,
        "holder": lease.holder,
        "grace_seconds": lease.grace,
        "metadata": lease.metadata,
        "weight": lease.weight,
        "priority": lease.priority,
        "created_at": iso(lease.created_at),
        "began_at": iso(lease.began_at),
        "renewed_at": iso(lease.renewed_at),
        "finished_at": iso(lease.finished_at),
        "sandboxes": sandboxes,
        "verdicts": verdicts,
    }
