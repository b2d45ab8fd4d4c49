"""Forks of a sandbox: others like it, which begin with its files, by a checkpoint that lasts until they run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from sandlot_gateway.checkpoints.service import Busy
from sandlot_gateway.checkpoints.store import Checkpoint
from sandlot_gateway.control.checkpoints import checkpoints_of
from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.control.services import Services
from sandlot_gateway.data.answers import Receive
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox, Spec

from .copies import begin_like, spec_now, taken
from .failures import Problem
from .requests import checked_timeout, read
from .starts import CREATE_WAIT, started

_MOST = 20
_WRITTEN_WITHIN = 30.0  # seconds: the SDK gives up after 60, and the forks have to start


class Ready(Protocol):
    async def __call__(self, sandbox: Sandbox, *, receive: Receive, until: float) -> None: ...


class NewForks(msgspec.Struct):
    timeout: int | None = None
    count: int = 1


async def forks(
    sandbox: Sandbox,
    body: bytes,
    *,
    begun: Callable[[Sandbox], dict[str, Any]],
    ready: Ready,
    receive: Receive,
    have: Services,
    who: Tenant,
) -> list[dict[str, Any]]:
    """Return a result for each fork: as `begun` renders it once it is ready, or why it did not start.

    Raises Problem, ApiError.
    """
    until = asyncio.get_running_loop().time() + CREATE_WAIT
    asked = read(body, NewForks)
    if not 0 < asked.count <= _MOST:
        raise Problem(400, f"count: must be from 1 to {_MOST}")
    timeout = checked_timeout(asked.timeout)
    spec = await spec_now(sandbox, have, what="fork")
    checkpoint = await taken(sandbox, have, within=_WRITTEN_WITHIN, what="the fork")

    async def one() -> dict[str, Any]:
        try:
            made = await _begun(spec, checkpoint, timeout=timeout, receive=receive, have=have, who=who)
            await ready(made, receive=receive, until=until)
        except Problem as problem:
            return {"error": problem.document()}
        except ApiError as error:
            return {"error": {"code": error.status, "message": error.detail}}
        return {"sandbox": begun(made)}

    try:
        return await asyncio.gather(*(one() for _ in range(asked.count)))
    finally:
        with contextlib.suppress(Busy):
            await checkpoints_of(have).delete(checkpoint)


async def _begun(
    spec: Spec, checkpoint: Checkpoint, *, timeout: int, receive: Receive, have: Services, who: Tenant
) -> Sandbox:
    made = await begin_like(
        spec, checkpoint, timeout=timeout, key=None, continues=None, receive=receive, have=have, who=who
    )
    await started(made, receive=receive, have=have)
    return made
