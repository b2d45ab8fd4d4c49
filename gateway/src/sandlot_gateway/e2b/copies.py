"""Waits for a checkpoint of a sandbox, and begins sandboxes like that one with its files."""

from __future__ import annotations

import asyncio
import math

import msgspec
from sandlot_contract.ids import SandboxId

from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.control import egress
from sandlot_gateway.control.begin import begin_sandbox
from sandlot_gateway.control.checkpoints import checkpoints_of
from sandlot_gateway.control.services import Services, images_refusal
from sandlot_gateway.data.answers import Receive
from sandlot_gateway.egress import EVERYTHING, Egress
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox, Spec

from .failures import Problem
from .starts import HOLD

_PAUSE = 0.1  # seconds between two looks at a checkpoint
_NO_RETRY = [(b"should-retry", b"false")]


async def written(checkpoint: Checkpoint, have: Services, *, within: float, what: str) -> Checkpoint:
    """Return a checkpoint once it is DURABLE. Raises Problem."""
    try:
        async with asyncio.timeout(within):
            found = await settled(checkpoint, have)
    except TimeoutError as error:
        text = f"{what} {checkpoint.id} is still being written: it is listed once it can be used"
        raise Problem(503, text, headers=_NO_RETRY) from error
    if found is None or found.state is State.FAILED:
        why = "it was deleted" if found is None else found.error
        raise Problem(503, f"{what} failed: {why}", headers=_NO_RETRY)
    return found


async def settled(checkpoint: Checkpoint, have: Services) -> Checkpoint | None:
    """Return a checkpoint once it is DURABLE or FAILED; None if it was deleted."""
    checkpoints = checkpoints_of(have)
    while True:
        found = await checkpoints.get(checkpoint.tenant, checkpoint.id)
        if found is None or found.state is not State.PENDING:
            return found
        await asyncio.sleep(_PAUSE)


async def spec_now(sandbox: Sandbox, have: Services, *, what: str) -> Spec:
    """Return what a sandbox like this one is created with, under the egress policy that it has now.

    Raises Problem, ApiError.
    """
    spec = sandbox.spec
    lost = sorted(set(spec.secret_names) - spec.secret_refs.keys())
    if lost:
        text = f"{what}: the value of the secret {lost[0]!r} is not kept: create sandboxes with secret_refs instead"
        raise Problem(400, text)
    policy = spec.egress
    if spec.network != "none":
        held = msgspec.convert((await egress.held_policy(sandbox, have=have))["policy"], Egress)
        policy = None if held == EVERYTHING else held
    return msgspec.structs.replace(spec, egress=policy, missed=None)


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
    pool = have.backend.pool(spec.pool) if spec.pool is not None else None
    usable = pool is not None and who.may_use(pool.owner) and pool.template.image in ("", spec.image)
    checked = pool is not None and usable and bool(pool.template.image)  # when the pool was created
    if not checked and (why := images_refusal(spec.image, have=have, who=who)):
        raise Problem(400, f"templateID: {why}")
    made = msgspec.structs.replace(
        spec,
        pool=spec.pool if usable else None,
        timeout=float(timeout),
        timeout_minutes=math.ceil(timeout / 60),
        key=key,
        checkpoint=checkpoint.id,
        continues=continues,
    )
    return await begin_sandbox(made, secrets={}, hold=hold, receive=receive, have=have, who=who)
