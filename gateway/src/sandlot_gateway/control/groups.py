"""Routes of groups: sandboxes that are created together or not at all."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Request, Response
from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from sandlot_gateway.audit.call import note
from sandlot_gateway.control.begin import create_refusal
from sandlot_gateway.control.errors import ApiError, body_errors, errors
from sandlot_gateway.control.group_models import MOST_DEADLINE, GroupRequest, GroupResponse
from sandlot_gateway.control.hang_ups import has_hung_up, unless_left
from sandlot_gateway.control.models import BulkDeleteResponse
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.present import gateway_auth, json_response, sandbox_document
from sandlot_gateway.control.sandboxes import UserAgent, spec_for
from sandlot_gateway.control.services import Have, Services, Who
from sandlot_gateway.core.group_turns import GroupId
from sandlot_gateway.core.supply_events import CannotStart, QueueFull
from sandlot_gateway.engine.errors import BadRequestField, GroupFailed, GroupKeyUsed, QuotaReached
from sandlot_gateway.engine.group import Group
from sandlot_gateway.engine.group_members import Wanted
from sandlot_gateway.group_membership import GroupRef, GroupServices
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox, Spec
from sandlot_gateway.sidecars import SidecarError

router = APIRouter(prefix=PREFIX, tags=["groups"])

DEADLINE = 300.0  # seconds

GroupIdText = Annotated[GroupId, Path(min_length=1, max_length=128)]


@router.post(
    "/group",
    status_code=201,
    response_model=GroupResponse,
    responses=body_errors(404, 409, 429, 501),
    summary="(Sandlot) Create a group of sandboxes, all or none",
)
async def create(
    body: GroupRequest, request: Request, have: Have, who: Who, user_agent: UserAgent = ""
) -> Response:
    """Create a group; answer when all its sandboxes run, when it has failed, or as PENDING after `wait_seconds`."""
    note(run=body.members[0].run_id or body.members[0].run)
    key = body.idempotency_key or secrets.token_hex(16)
    group_id = _group_id(key, tenant=who.name)
    wanted = await _wanted(body, group_id=group_id, have=have, who=who)
    with refusals(have):
        deadline = body.deadline_seconds or DEADLINE
        group = have.lifecycle.groups.begin(group_id, wanted, tenant=who, deadline=deadline)
    note(id=group_id)
    hold = have.settings.wait_seconds if body.wait_seconds is None else body.wait_seconds
    return await answered(
        group,
        key=key,
        hold=hold,
        comes_back=body.idempotency_key is not None,
        request=request,
        have=have,
        user_agent=user_agent,
    )


@contextmanager
def refusals(have: Services) -> Iterator[None]:
    """Make ApiErrors of what a group may be refused for."""
    try:
        yield
    except GroupKeyUsed as error:
        raise ApiError(409, f"idempotency_key: {error}", field="idempotency_key") from error
    except (QueueFull, QuotaReached) as error:
        raise create_refusal(error, have=have) from error


def member_key(group_id: GroupId, index: int) -> str:
    """Return the idempotency key of one sandbox of a group."""
    return f"{group_id}-{index}"


async def answered(
    group: Group,
    *,
    key: str,
    hold: float,
    comes_back: bool,
    request: Request,
    have: Services,
    user_agent: str,
) -> Response:
    """Wait up to `hold` seconds for a group that was begun, or until its caller leaves, and answer. Raises ApiError.

    `comes_back`: its caller knows the key, and may ask again if it leaves.
    """
    groups, size = have.lifecycle.groups, len(group.members)
    handed_out = False
    try:
        complete = await unless_left(groups.wait(group, timeout=hold), request.receive)
        if complete and not has_hung_up(request.receive):
            await asyncio.gather(*map(have.lifecycle.hand_out, group.members))
            handed_out = True
            # It may have come to something else while the sidecars were told.
            complete = await groups.wait(group, timeout=0.0)
        if has_hung_up(request.receive):
            note(left=True)
            handed_out = False
        elif not complete:
            comes_back = True  # the answer has the key
    except GroupFailed as error:
        if error.verdict is None:
            headers = {"retry-after": str(max(1, round(error.retry_after)))}
            raise ApiError(503, str(error), headers=headers) from error
        failed = _document(group.id, "FAILED", size=size, verdict=error.verdict, message=str(error))
        return json_response(failed, status=201)
    except (QueueFull, CannotStart, BadRequestField) as error:
        raise create_refusal(error, have=have) from error
    except SidecarError as error:
        text = f"a sandbox of the group does not answer: try again after Retry-After ({error})"
        raise ApiError(503, text, headers={"retry-after": "1"}) from error
    finally:
        groups.left(group, handed_out=handed_out, comes_back=comes_back)
    if not handed_out:
        pending = _document(group.id, "PENDING", size=size, key=key, position=groups.position(group))
        return json_response(pending, status=201)
    documents = [
        sandbox_document(
            member,
            user_agent=user_agent,
            auth=gateway_auth(member, have=have, request=request),
        )
        for member in group.members
    ]
    return json_response(_document(group.id, "RUNNING", size=size, sandboxes=documents), status=201)


@router.get(
    "/group/{group_id}",
    response_model=GroupResponse,
    responses=errors(404),
    summary="(Sandlot) Get a group",
)
async def get(group_id: GroupIdText, have: Have, who: Who, user_agent: UserAgent = "") -> Response:
    """Return a group; without its sandboxes while it is PENDING."""
    group = have.lifecycle.groups.get(group_id, who.name)
    if group is not None and group.failure is None:
        position = have.lifecycle.groups.position(group)
        return json_response(_document(group_id, "PENDING", size=len(group.members), position=position))
    found = await _members(group_id, have=have, who=who)
    size = found[0].spec.group.size if found[0].spec.group is not None else len(found)
    newest = max(member.created_at for member in found)
    forgotten = len(found) < size and newest < time.time() - MOST_DEADLINE  # none can be on its way
    if forgotten or any(not member.live for member in found):
        status = "ENDED"
    elif len(found) < size or any(member.status is Status.PENDING for member in found):
        return json_response(_document(group_id, "PENDING", size=size))
    else:
        status = "RUNNING"
    documents = [sandbox_document(member, user_agent=user_agent) for member in found]
    return json_response(_document(group_id, status, size=size, sandboxes=documents))


@router.delete(
    "/group/{group_id}",
    response_model=BulkDeleteResponse,
    responses=errors(404),
    summary="(Sandlot) Delete all sandboxes of a group",
)
async def delete(group_id: GroupIdText, have: Have, who: Who) -> Response:
    """Delete all sandboxes of a group, also while it is PENDING."""
    group = have.lifecycle.groups.get(group_id, who.name)
    if group is not None:
        gone = list(group.members)
        have.lifecycle.groups.delete(group)
    else:
        gone = [member for member in await _members(group_id, have=have, who=who) if member.live]
    for member in gone:
        have.lifecycle.ends.delete(member)
    ids: list[SandboxId] = [member.id for member in gone]
    note(deleted=ids)
    await have.lifecycle.deleted_everywhere(*gone)
    return json_response({"succeeded": ids, "failed": [], "message": f"deleted {len(ids)}, failed 0"})


async def _members(group_id: GroupId, *, have: Services, who: Tenant) -> list[Sandbox]:
    """Return the caller's sandboxes of a group, in its order. 404 if there are none."""
    await have.learn_claims(who)
    found = have.directory.list(tenant=who.name, group=group_id, per_page=1 << 30).sandboxes
    if not found:
        raise ApiError(
            404,
            f"no group {group_id!r}: its id is wrong, its records were removed, or another tenant owns it"[
                :300
            ],
        )
    return sorted(found, key=lambda member: member.spec.group.index if member.spec.group is not None else 0)


async def _wanted(body: GroupRequest, *, group_id: GroupId, have: Services, who: Tenant) -> Wanted:
    """Return spec and secrets of each sandbox. Raises ApiError, with the member of the field."""
    size = sum(member.count for member in body.members)
    found: list[tuple[Spec, dict[str, str]]] = []
    services = {member.service: member.ports or [] for member in body.members if member.service is not None}
    for number, member in enumerate(body.members):
        try:
            spec = await spec_for(member, have=have, who=who)
        except ApiError as error:
            if error.field is None:
                raise
            field = f"members.{number}.{error.field}"
            raise ApiError(error.status, f"members.{number}.{error.detail}", field=field) from error
        if services:
            _check_network(spec, field=f"members.{number}.network", have=have)
            spec = msgspec.structs.replace(spec, services=GroupServices(services, own=member.service))
        for _ in range(member.count):
            index = len(found)
            name = member.name or f"{spec.name}-{index}"
            ref, key = GroupRef(group_id, size, index), member_key(group_id, index)
            one = msgspec.structs.replace(spec, name=name, group=ref, key=key)
            found.append((one, member.secrets or {}))
    check_slots([spec for spec, _ in found], have=have, who=who)
    return found


def _check_network(spec: Spec, *, field: str, have: Services) -> None:
    """Refuse a sandbox whose links others could use. Raises ApiError 422."""
    if have.settings.backend == "local" and spec.network == "full":
        raise ApiError(
            422,
            f"{field}: services need a network of the sandbox's own, and on one machine `full` is the machine's;"
            " write none: services are reachable with it",
            field=field,
        )


def check_slots(specs: Sequence[Spec], *, have: Services, who: Tenant) -> None:
    """Refuse a group of more sandboxes than the pools have slots that alone serve them. Raises ApiError 422."""
    kind = have.supply.slots.kind
    for name, count in Counter(kind(spec.template()) for spec in specs).items():
        most = list(_slots_of(name, have=have, who=who))
        if most and count > sum(most):
            raise ApiError(
                422,
                f"members: the group needs {count} slots of one size, and the pools of that size have at most"
                f" {sum(most)}; create a smaller group, or ask the operator for larger pools",
                field="members",
            )


def _slots_of(kind: str, *, have: Services, who: Tenant) -> Iterator[int]:
    """Yield how many slots each pool has at most that serves this kind, of those that take any image."""
    for status in have.backend.pools():
        spec = status.spec
        serves = not spec.template.image and spec.size > 0 and who.may_use(spec.owner)
        if serves and have.supply.slots.kind(spec.template) == kind:
            yield spec.size if spec.bounds is None else spec.bounds[1]


def _group_id(key: str, *, tenant: str) -> GroupId:
    return GroupId(f"gr-{hashlib.sha256(f'{tenant}/{key}'.encode()).hexdigest()[:32]}")


def _document(
    group_id: GroupId,
    status: str,
    *,
    size: int,
    key: str | None = None,
    position: int | None = None,
    verdict: str | None = None,
    message: str | None = None,
    sandboxes: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    return {
        "id": group_id,
        "status": status,
        "size": size,
        "idempotency_key": key,
        "queuePosition": position,
        "verdict": verdict,
        "message": message,
        "sandboxes": sandboxes,
    }
