"""Waits for a checkpoint of a sandbox, and begins sandboxes like that one with its files."""

from __future__ import annotations

import asyncio
import math

import msgspec
from sandlot_contract.ids import SandboxId

from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.control.begin import begin_sandbox
from sandlot_gateway.control.checkpoints import checkpoints_of
from sandlot_gateway.control.copying import ImageRefused, lost_secrets, spec_now, usable
from sandlot_gateway.control.services import Services
from sandlot_gateway.data.answers import Receive
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox, Spec

from .deadlines import margin_of
from .failures import Problem
from .starts import HOLD

_NO_RETRY = [(b"should-retry", b"false")]


async def written(checkpoint: Checkpoint, have: Services, *, within: float, what: str) -> Checkpoint:
    """Return a checkpoint once it is DURABLE. Raises Problem."""
    try:
        async with asyncio.timeout(within):
            found = await checkpoints_of(have).settled(checkpoint.tenant, checkpoint.id)
    except TimeoutError as error:
        text = f"{what} {checkpoint.id} is still being written: it is listed once it can be used"
        raise Problem(503, text, headers=_NO_RETRY) from error
    if found is None or found.state is State.FAILED:
        why = "it was deleted" if found is None else found.error
        raise Problem(503, f"{what} failed: {why}", headers=_NO_RETRY)
    return found


async def spec_to_copy(sandbox: Sandbox, have: Services, *, what: str) -> Spec:
    """Return what a sandbox like this one is created with, without other secrets. Raises Problem, ApiError."""
    if lost := lost_secrets(sandbox.spec):
        text = f"{what}: the value of the secret {lost[0]!r} is not kept: create sandboxes with secret_refs instead"
        raise Problem(400, text)
    return await spec_now(sandbox, have=have)


async def begin_like(
    spec: Spec,
    checkpoint: Checkpoint,
    *,
    timeout: int,
    key: str | None,
    continues: SandboxId | None,
    receive: Receive,
    have: Services,
    who: Tenant,
    hold: float = HOLD,
) -> Sandbox:
    """Begin a sandbox with these files, if the caller may still use its pool and its image. Raises Problem, ApiError."""
    try:
        spec = usable(spec, have=have, who=who)
    except ImageRefused as error:
        raise Problem(400, f"templateID: {error}") from error
    lasts = timeout + margin_of(spec)
    made = msgspec.structs.replace(
        spec,
        timeout=float(lasts),
        timeout_minutes=math.ceil(lasts / 60),
        key=key,
        checkpoint=checkpoint.id,
        continues=continues,
        group=None,  # that of the sandbox is complete without this one
        services=None,
    )
    return await begin_sandbox(made, secrets={}, hold=hold, receive=receive, have=have, who=who)
