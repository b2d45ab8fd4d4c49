"""Routes that read and replace a sandbox's egress policy, also for what already runs in it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field, model_validator
from sandlot_contract.statuses import Status

from sandlot_gateway.control.errors import ApiError, body_errors, errors
from sandlot_gateway.control.field_types import Strict
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.present import json_response
from sandlot_gateway.control.services import Have, Owned, Services
from sandlot_gateway.data.pool import Answer
from sandlot_gateway.egress import EVERYTHING, NOTHING, BadTarget, Egress, canonical
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.sidecars import SidecarError, document

router = APIRouter(prefix=PREFIX, tags=["network"])

_FIRST = 1  # generation of the policy from the create


class Policy(Strict):
    """An egress policy with exactly one list: an empty denylist allows everything, an empty allowlist nothing."""

    allowlist: list[str] | None = Field(
        None, max_length=1024, description="IPv4[/prefix][:port[-port]], or [*.]host[:80] or [*.]host[:443]."
    )
    denylist: list[str] | None = Field(None, max_length=1024, description="In the same form.")

    @model_validator(mode="after")
    def _one(self) -> Policy:
        if (self.allowlist is None) == (self.denylist is None):
            raise ValueError("allowlist: give either allowlist or denylist, and null for the other")
        return self


class PolicyStatus(BaseModel):
    policy: Policy
    generation: int
    applied_generation: int = Field(description="0 while the sandbox is PENDING.")
    applied: bool = Field(description="Whether the kernel enforces it for every process of the sandbox.")


@router.get(
    "/sandbox/{sandbox_id}/egress-policy",
    response_model=PolicyStatus,
    responses=errors(404, 409, 502),
    summary="Get a sandbox's egress policy",
)
async def get(sandbox: Owned, have: Have) -> Response:
    _check_live(sandbox)
    return json_response(await held_policy(sandbox, have=have))


@router.put(
    "/sandbox/{sandbox_id}/egress-policy",
    response_model=PolicyStatus,
    responses=body_errors(404, 409, 502),
    summary="Replace a sandbox's egress policy",
)
async def put(sandbox: Owned, body: Policy, have: Have) -> Response:
    """Apply a policy and return when it is enforced. One that cannot be enforced is a 422 and changes nothing."""
    _check_live(sandbox)
    policy = _canonical(body)
    held = await held_policy(sandbox, have=have)
    if held["policy"] == policy.document():
        return json_response(held)
    if sandbox.spec.network == "none":
        text = f"{policy.field}: the sandbox was created with network 'none'; create one with 'full'"
        raise ApiError(422, text, field=policy.field)
    if sandbox.status is not Status.RUNNING:
        raise ApiError(409, f"the sandbox is {sandbox.status}: wait until it is RUNNING")
    answer = await _ask(sandbox, have=have, policy=policy)
    told = document(answer)
    if answer.status == 200:
        return json_response(_status(told["policy"], told["generation"]))
    older = answer.status in (400, 404)
    if older or told.get("error") == "unsupported":
        why = "its sidecar is too old" if older else told["message"]
        text = f"{policy.field}: the egress policy of this sandbox cannot be changed: {why}"
        raise ApiError(422, text, field=policy.field)
    status = 409 if answer.status in (409, 410) else 502
    raise ApiError(status, f"the sandbox answered: {told.get('message') or answer.status}")


def _canonical(body: Policy) -> Egress:
    try:
        return canonical(allowlist=body.allowlist, denylist=body.denylist)
    except BadTarget as error:
        field = "denylist" if body.allowlist is None else "allowlist"
        raise ApiError(422, f"{field}: {error}", field=f"{field}.{error.number}") from error


async def held_policy(sandbox: Sandbox, *, have: Services) -> dict[str, Any]:
    """Return the policy that the sidecar enforces now."""
    of_create = _of_create(sandbox)
    if sandbox.status is not Status.RUNNING:
        return _status(of_create, _FIRST, applied=False)
    if sandbox.spec.network == "none":
        return _status(of_create, _FIRST)
    answer = await _ask(sandbox, have=have)
    if answer.status == 404:
        return _status(of_create, _FIRST)  # a sidecar without this route still has the policy of the create
    if answer.status != 200:
        raise ApiError(502, f"the sandbox answered with status {answer.status}")
    told = document(answer)
    return _status(told.get("policy") or of_create, told["generation"])


def _of_create(sandbox: Sandbox) -> dict[str, Any]:
    if sandbox.spec.network == "none":
        return NOTHING.document()
    return (sandbox.spec.egress or EVERYTHING).document()


async def _ask(sandbox: Sandbox, *, have: Services, policy: Egress | None = None) -> Answer:
    instance = have.lifecycle.instance_of(sandbox)
    if instance is None:
        raise ApiError(409, "the sandbox has ended")
    try:
        return await have.sidecars.egress(instance, policy)
    except SidecarError as error:
        raise ApiError(502, f"the sandbox did not answer: {error}; try again") from error


def _check_live(sandbox: Sandbox) -> None:
    if not sandbox.live:
        raise ApiError(409, f"the sandbox has ended: {sandbox.verdict}")


def _status(policy: dict[str, Any], generation: int, *, applied: bool = True) -> dict[str, Any]:
    return {
        "policy": policy,
        "generation": generation,
        "applied_generation": generation if applied else 0,
        "applied": applied,
    }
