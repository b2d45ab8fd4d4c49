"""The route that forks a sandbox: a group of others like it, which begin with the files that it has now.

The files go by a checkpoint, whose id follows from the request's key. The forks claim their instances while it is being
written. The gateway that began it deletes it when they run or have failed; else it expires.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from fastapi import APIRouter, Request, Response
from sandlot_contract.statuses import Status

from sandlot_gateway.audit.call import note
from sandlot_gateway.control.checkpoints import checkpoints_of
from sandlot_gateway.control.copying import ImageRefused, lost_secrets, spec_now, usable
from sandlot_gateway.control.errors import ApiError, body_errors
from sandlot_gateway.control.fork_copies import begun_forks, copied, copy_of
from sandlot_gateway.control.fork_models import ForkRequest
from sandlot_gateway.control.group_models import GroupResponse
from sandlot_gateway.control.groups import DEADLINE, answered, check_slots, member_key, refusals
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.runs import admitted_again
from sandlot_gateway.control.sandboxes import UserAgent
from sandlot_gateway.control.services import Have, Owned, Services, Who
from sandlot_gateway.control.start_commands import start_command
from sandlot_gateway.control.variable_checks import check_variables
from sandlot_gateway.core.group_turns import GroupId
from sandlot_gateway.engine.group import Group
from sandlot_gateway.engine.group_members import Wanted
from sandlot_gateway.group_membership import GroupRef
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox, Spec

router = APIRouter(prefix=PREFIX, tags=["groups"])


@router.post(
    "/sandbox/{sandbox_id}/fork",
    status_code=201,
    response_model=GroupResponse,
    responses=body_errors(404, 409, 429, 501, 507),
    summary="(Sandlot) Fork a sandbox: others with its files, all or none",
)
async def fork(
    sandbox: Owned,
    body: ForkRequest,
    request: Request,
    have: Have,
    who: Who,
    user_agent: UserAgent = "",
) -> Response:
    """Create a group of sandboxes with the files that this one has now; answer as for a group."""
    checkpoints_of(have)
    key = body.idempotency_key or secrets.token_hex(16)
    digest = hashlib.sha256(f"fork\0{who.name}\0{sandbox.id}\0{key}".encode()).hexdigest()
    group_id, checkpoint_id = GroupId(f"gr-{digest[:32]}"), f"cp-{digest[32:56]}"
    await have.learn_claims(who)
    is_known = _is_known(group_id, body.count, have=have, who=who)
    if is_known:
        spec = sandbox.spec
    elif sandbox.status is Status.RUNNING:
        spec = await _admitted(await spec_now(sandbox, have=have), have=have, who=who)
    elif await copy_of(who.name, checkpoint_id, have=have) is not None:
        keys = _member_keys(group_id, body.count)
        spec = await _admitted(_last_spec(sandbox, keys, have=have), have=have, who=who)
    else:
        raise _not_running(sandbox)
    wanted = _wanted(spec, body, group_id=group_id, checkpoint_id=checkpoint_id)
    deadline = body.deadline_seconds or DEADLINE
    if is_known:
        group = _begun(group_id, wanted, deadline=deadline, have=have, who=who)
    else:
        _check_room(wanted, have=have, who=who)
        group = await _begun_with_files(
            sandbox, group_id, wanted, checkpoint_id=checkpoint_id, deadline=deadline, have=have, who=who
        )
    note(id=sandbox.id, made=[member.id for member in group.members])
    return await answered(
        group,
        key=key,
        hold=have.settings.wait_seconds if body.wait_seconds is None else body.wait_seconds,
        comes_back=body.idempotency_key is not None,
        request=request,
        have=have,
        user_agent=user_agent,
    )


def _is_known(group_id: GroupId, count: int, *, have: Services, who: Tenant) -> bool:
    """Return whether the forks of this key have begun, so that their files are those of an earlier request."""
    if have.lifecycle.groups.get(group_id, who.name) is not None:
        return True
    keys = _member_keys(group_id, count)
    return all(have.directory.by_key(who.name, key) is not None for key in keys)


def _last_spec(sandbox: Sandbox, keys: list[str], *, have: Services) -> Spec:
    """Return the spec of a sandbox that has ended, with the egress policy that it had at the fork. Raises ApiError."""
    spec = sandbox.spec
    if spec.network == "none":
        return spec
    begun = begun_forks(sandbox.tenant, keys, have=have)
    if not begun:
        raise _not_running(sandbox)  # its policy may have become stricter than its create's
    return msgspec.structs.replace(spec, egress=begun[0].spec.egress, missed=None)


def _not_running(sandbox: Sandbox) -> ApiError:
    return ApiError(409, f"the sandbox is {sandbox.status}; a fork needs a RUNNING one")


async def _admitted(spec: Spec, *, have: Services, who: Tenant) -> Spec:
    try:
        spec = usable(spec, have=have, who=who)
    except ImageRefused as error:
        raise ApiError(409, f"the sandbox's image cannot be used for others: {error}") from error
    await admitted_again(spec, have=have, who=who)
    return spec


def _wanted(spec: Spec, body: ForkRequest, *, group_id: GroupId, checkpoint_id: str) -> Wanted:
    """Return spec and secrets of each fork. Raises ApiError."""
    values = _secrets(spec, body)
    changes = {
        "labels": spec.labels if body.labels is None else body.labels,
        "secret_names": sorted({*spec.secret_refs, *values}),
        "checkpoint": checkpoint_id,
        "continues": None,
        "services": None,  # those of the sandbox's group: a fork would be a second one of its name
    }
    if not body.same_start_command:
        command, kind = start_command(body.start_command)
        changes |= {
            "start_command": command,
            "start_kind": kind,
            "run_image_command": False,
            "ready_command": None,
        }
    if body.timeout_seconds is not None:
        changes |= {
            "timeout": body.timeout_seconds,
            "timeout_minutes": math.ceil(body.timeout_seconds / 60),
            "auto_pause": False,
        }
    name = body.name or spec.name[:90]
    return [
        (
            msgspec.structs.replace(
                spec,
                name=f"{name}-{index}",
                group=GroupRef(group_id, body.count, index),
                key=key,
                **changes,
            ),
            values,
        )
        for index, key in enumerate(_member_keys(group_id, body.count))
    ]


def _secrets(spec: Spec, body: ForkRequest) -> dict[str, str]:
    """Return the values of the forks' secrets. Raises ApiError if one of the sandbox's is missing."""
    values = body.secrets or {}
    missing = [name for name in lost_secrets(spec) if name not in values]
    if missing:
        raise ApiError(
            422,
            f"secrets: the value of the sandbox's secret {missing[0][:80]!r} is not kept: give it here, or create"
            " sandboxes with secret_refs",
            field="secrets",
        )
    twice = sorted(values.keys() & spec.secret_refs.keys())
    if twice:
        text = f"secrets: {twice[0][:80]!r} is in the sandbox's secret_refs: leave it out here"
        raise ApiError(422, text, field="secrets")
    try:
        check_variables(spec.env, values)
    except ValueError as error:
        raise ApiError(422, str(error), field="secrets") from error
    return values


def _check_room(wanted: Wanted, *, have: Services, who: Tenant) -> None:
    """Refuse what quotas, pools, queues and the key do not allow, before any file is read. Raises ApiError."""
    with _of_count(), refusals(have):
        check_slots([spec for spec, _ in wanted], have=have, who=who)
        have.lifecycle.groups.check(wanted, tenant=who)


async def _begun_with_files(
    sandbox: Sandbox,
    group_id: GroupId,
    wanted: Wanted,
    *,
    checkpoint_id: str,
    deadline: float,
    have: Services,
    who: Tenant,
) -> Group:
    """Begin the checkpoint, then the forks, which wait for it. Raises ApiError."""
    temporary = have.temporary
    assert temporary is not None
    use = temporary.hold(checkpoint_id)
    try:
        keys = [spec.key or "" for spec, _ in wanted]
        left = await copied(sandbox, checkpoint_id, use=use, keys=keys, deadline=deadline, have=have)
        group = _begun(group_id, wanted, deadline=left, have=have, who=who)
    except BaseException:
        temporary.release(checkpoint_id)
        raise

    async def is_over() -> bool:
        await group.settled.wait()
        return (
            group.complete or group.failure is not None
        )  # else this gateway stops, and another one may go on

    temporary.release(checkpoint_id, after=is_over)
    return group


def _begun(group_id: GroupId, wanted: Wanted, *, deadline: float, have: Services, who: Tenant) -> Group:
    with _of_count(), refusals(have):
        return have.lifecycle.groups.begin(group_id, wanted, tenant=who, deadline=deadline)


@contextmanager
def _of_count() -> Iterator[None]:
    """Make an error of a group's members one of the number of forks."""
    try:
        yield
    except ApiError as error:
        if error.field != "members":
            raise
        text = f"count: {error.detail.removeprefix('members: ')}"
        raise ApiError(error.status, text, field="count", headers=error.headers, extra=error.extra) from error


def _member_keys(group_id: GroupId, count: int) -> list[str]:
    return [member_key(group_id, index) for index in range(count)]
