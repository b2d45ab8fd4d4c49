"""Begins a sandbox of a translated request, and waits for it while its caller is there."""

from __future__ import annotations

import math

from sandlot_gateway.audit.call import note
from sandlot_gateway.control.counters import CreateRefusal
from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.control.hang_ups import has_hung_up
from sandlot_gateway.control.services import Services
from sandlot_gateway.core.supply_events import CannotStart, QueueFull
from sandlot_gateway.data.answers import Receive
from sandlot_gateway.engine.errors import BadRequestField, QuotaReached
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox, Spec
from sandlot_gateway.sidecars import SidecarError


async def begin_sandbox(
    spec: Spec, *, secrets: dict[str, str], hold: float, receive: Receive, have: Services, who: Tenant
) -> Sandbox:
    """Create a sandbox and wait up to `hold` seconds for it. Raises ApiError."""
    try:
        sandbox = have.lifecycle.create(spec, secrets=secrets, tenant=who)
        note(id=sandbox.id, sandbox=sandbox.id)
        sandbox = await have.lifecycle.wait(sandbox, timeout=hold)
        note(id=sandbox.id, sandbox=sandbox.id)
    except (QueueFull, CannotStart, QuotaReached, BadRequestField) as error:
        raise create_refusal(error, have=have) from error
    # Not for a client that has left: its retry would find, at another gateway, a sandbox that this one is to delete.
    if not has_hung_up(receive):
        try:
            await have.lifecycle.hand_out(sandbox)
        except SidecarError as error:
            if sandbox.spec.key is not None:
                have.lifecycle.ends.orphans.hung_up(sandbox)  # this caller does not get it
            text = f"the sandbox does not answer: try again after Retry-After ({error})"
            raise ApiError(503, text, headers={"retry-after": "1"}) from error
    if has_hung_up(receive):
        note(left=True)
        have.lifecycle.ends.orphans.hung_up(sandbox)
    return sandbox


def create_refusal(
    error: QueueFull | CannotStart | QuotaReached | BadRequestField, *, have: Services
) -> ApiError:
    """Count a create that is refused, and return its answer."""
    match error:
        case QueueFull():
            have.counters.refused(CreateRefusal.QUEUE_FULL)
            note(error=CreateRefusal.QUEUE_FULL)
            headers = {
                "retry-after": str(round(error.retry_after)),
                "x-sandlot-queue-position": str(error.position),
            }
            return ApiError(503, str(error), headers=headers, extra={"queue_position": error.position})
        case CannotStart():
            return _cannot_start(error, have=have)
        case QuotaReached():
            return _over_quota(error, have=have)
        case BadRequestField():
            have.counters.refused(CreateRefusal.BAD_REQUEST)
            return ApiError(422, f"{error.field}: {error}", field=error.field)


def _over_quota(error: QuotaReached, *, have: Services) -> ApiError:
    have.counters.over_quota(error.quota)
    note(error=CreateRefusal.QUOTA)
    if error.field is not None:
        # Not a 429, which clients repeat for minutes.
        return ApiError(422, f"{error.field}: {error}", field=error.field)
    if error.retry_after is None:
        return ApiError(403, str(error))
    return ApiError(429, str(error), headers={"retry-after": str(max(1, math.ceil(error.retry_after)))})


def _cannot_start(error: CannotStart, *, have: Services) -> ApiError:
    have.counters.refused(CreateRefusal.CANNOT_START)
    note(error=CreateRefusal.CANNOT_START)
    return ApiError(503, str(error), headers={"retry-after": str(max(1, round(error.retry_after)))})
