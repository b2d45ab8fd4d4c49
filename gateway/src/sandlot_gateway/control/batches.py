"""Batch routes for the status of sandboxes and background jobs; they wait a moment if that saves a poll."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, BeforeValidator, Field
from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from sandlot_gateway.control.errors import body_errors
from sandlot_gateway.control.field_types import SandboxIdText, Strict, WireStatus, unique
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.present import error_message, json_response
from sandlot_gateway.control.services import READY_HOLD, Have, Services, Who, appeared
from sandlot_gateway.data.routes import Route
from sandlot_gateway.sidecars import SidecarError, document

router = APIRouter(prefix=PREFIX, tags=["batches"])

# Seconds. Clients sleep up to 20 s between polls and send one at a time for all their jobs: a longer wait would
# delay the news of another job's end, and the job's own time limit.
_JOB_HOLD = 5.0
_JOB_FIRST_LOOK = 0.05
_JOB_NEXT_LOOK = 0.2  # plus 10 ms for each job: a hundred are polled once a second
_JOBS_AT_ONCE = 16


class StatusRequest(Strict):
    sandbox_ids: Annotated[list[SandboxIdText], BeforeValidator(unique)] = Field(
        min_length=1, max_length=100, json_schema_extra={"uniqueItems": True}
    )


class SandboxStatus(BaseModel):
    sandbox_id: SandboxIdText
    status: WireStatus
    error_type: str | None
    error_message: str | None
    pending_image_build_id: str | None
    verdict: str | None


class StatusError(BaseModel):
    sandbox_id: SandboxIdText
    code: Literal["NOT_FOUND", "FORBIDDEN", "MANAGED"]
    message: str


class StatusResponse(BaseModel):
    """Each requested id is in one of the lists."""

    statuses: list[SandboxStatus]
    errors: list[StatusError]


@router.post(
    "/sandbox/status:batchGet",
    response_model=StatusResponse,
    responses=body_errors(),
    summary="Status of up to 100 sandboxes",
)
async def statuses(body: StatusRequest, have: Have, who: Who) -> Response:
    """Return the status of each sandbox; for a single PENDING one, wait up to a second for it to start."""
    late = await appeared(body.sandbox_ids, have.directory, tenant=who.name)
    if len(body.sandbox_ids) == 1 and have.directory.of_tenant(body.sandbox_ids[0], who.name):
        await have.directory.changed(body.sandbox_ids[0], timeout=READY_HOLD)
    found: list[dict[str, Any]] = []
    missing: list[dict[str, Any]] = []
    for sandbox_id in body.sandbox_ids:
        sandbox = have.directory.of_tenant(sandbox_id, who.name)
        if sandbox is None and sandbox_id not in late:
            missing.append({"sandbox_id": sandbox_id, "code": "NOT_FOUND", "message": "no such sandbox"})
            continue
        if sandbox is not None:
            have.lifecycle.ends.orphans.used(sandbox_id)
        found.append(
            {
                "sandbox_id": sandbox_id,
                # Prime's client gives up at any error entry.
                "status": sandbox.status if sandbox is not None else Status.PENDING,
                "error_type": sandbox.error_type if sandbox is not None else None,
                "error_message": error_message(sandbox) if sandbox is not None else None,
                "pending_image_build_id": None,
                "verdict": sandbox.verdict if sandbox is not None else None,
            }
        )
    return json_response({"statuses": found, "errors": missing})


class Job(Strict):
    sandbox_id: SandboxIdText
    job_id: str = Field(pattern="^[A-Za-z0-9_-]{1,64}$")


class JobsRequest(Strict):
    jobs: list[Job] = Field(min_length=1, max_length=100)


class JobStatus(BaseModel):
    sandbox_id: SandboxIdText
    job_id: str
    completed: bool
    exit_code: int | None = Field(description="With `completed` only.")


class JobError(BaseModel):
    sandbox_id: SandboxIdText
    job_id: str
    code: Literal["NOT_FOUND", "FORBIDDEN", "MANAGED", "NOT_VM", "NOT_RUNNING", "RUNTIME_ERROR"]
    message: str


class JobsResponse(BaseModel):
    """Each requested job is in one of the lists."""

    statuses: list[JobStatus]
    errors: list[JobError]


@router.post(
    "/sandbox/background-jobs/status:batchGet",
    response_model=JobsResponse,
    responses=body_errors(),
    summary="Status of up to 100 background jobs",
)
async def jobs(body: JobsRequest, request: Request, have: Have, who: Who) -> Response:
    """Return the status of each job; wait up to 5 s while all run.

    A job is complete when its shell has written the exit code to `/tmp/job_ID.exit`.
    """
    wanted = list({(job.sandbox_id, job.job_id): job for job in body.jobs}.values())
    late = await appeared({job.sandbox_id for job in wanted}, have.directory, tenant=who.name)
    slots = asyncio.Semaphore(_JOBS_AT_ONCE)

    async def look(job: Job) -> dict[str, Any]:
        async with slots:
            return await _look(job, have=have, tenant=who.name, late=late)

    loop = asyncio.get_running_loop()
    deadline = loop.time() + _JOB_HOLD
    pause = _JOB_FIRST_LOOK
    longest = max(_JOB_NEXT_LOOK, 0.01 * len(wanted))
    while True:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(look(job)) for job in wanted]
        answers = [task.result() for task in tasks]
        all_run = all(answer.get("completed") is False for answer in answers)
        if not all_run or loop.time() + pause > deadline or await request.is_disconnected():
            break
        await asyncio.sleep(pause)
        pause = min(pause * 2, longest)
    return json_response(
        {
            "statuses": [answer for answer in answers if "completed" in answer],
            "errors": [answer for answer in answers if "code" in answer],
        }
    )


_EXIT_CODE = re.compile(r"\s*(-?\d{1,9})\s*\Z")


async def _look(job: Job, *, have: Services, tenant: str, late: Collection[SandboxId]) -> dict[str, Any]:
    about = {"sandbox_id": job.sandbox_id, "job_id": job.job_id}
    sandbox = have.directory.of_tenant(job.sandbox_id, tenant)
    if sandbox is None and job.sandbox_id in late:
        return about | {"completed": False, "exit_code": None}
    if sandbox is None:
        return about | {"code": "NOT_FOUND", "message": "no such sandbox"}
    have.lifecycle.ends.orphans.used(sandbox.id)
    route: Route | None = have.directory.find(sandbox.id)
    if route is None or route.status is not Status.RUNNING:
        return about | {"code": "NOT_RUNNING", "message": f"the sandbox is {sandbox.status}"}
    try:
        answer = await have.sidecars.get(route, "/v1/read-file", {"path": f"/tmp/job_{job.job_id}.exit"})
    except SidecarError as error:
        return about | {"code": "RUNTIME_ERROR", "message": str(error)}
    if answer.status == 404:
        return about | {"completed": False, "exit_code": None}
    told = document(answer)
    if answer.status != 200:
        message = told.get("message") or f"status {answer.status}"
        return about | {"code": "RUNTIME_ERROR", "message": str(message)}
    code = _EXIT_CODE.match(str(told.get("content", "")))
    # The shell creates the file before it writes the exit code.
    return about | {"completed": code is not None, "exit_code": int(code[1]) if code else None}
