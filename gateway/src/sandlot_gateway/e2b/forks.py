"""Forks of a sandbox: others like it, which begin with its files, by a checkpoint that lasts until they run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from sandlot_gateway.audit.call import note
from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.control.checkpoints import begin_checkpoint
from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.control.hang_ups import has_hung_up
from sandlot_gateway.control.services import Services
from sandlot_gateway.data.answers import Receive
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox, Spec

from .copies import begin_like, spec_to_copy, written
from .documents import id_of
from .failures import Problem
from .requests import checked_timeout, read
from .starts import CREATE_WAIT, HOLD, started

_MOST = 20
_WRITTEN_WITHIN = 30.0  # seconds: the rest of CREATE_WAIT is for the forks' start
_LASTS = 600.0  # seconds, of its checkpoint if this gateway dies
_OLD_ENTRY = "e2b.fork"  # of the metadata of such a checkpoint of an earlier version


class Ready(Protocol):
    async def __call__(self, sandbox: Sandbox, *, receive: Receive, until: float) -> None: ...


class NewForks(msgspec.Struct):
    timeout: int | None = None
    count: int = 1


def is_forks(checkpoint: Checkpoint) -> bool:
    is_own = checkpoint.expires_at is not None and not checkpoint.by_quota
    return is_own or _OLD_ENTRY in checkpoint.metadata


class Forks:
    """`begun` renders a sandbox that has begun; `ready` waits until its template's ready command succeeds."""

    def __init__(self, have: Services, *, begun: Callable[[Sandbox], dict[str, Any]], ready: Ready) -> None:
        self._ready = ready
        self._have = have
        self._begun = begun

    async def create(
        self, sandbox: Sandbox, body: bytes, *, receive: Receive, who: Tenant
    ) -> list[dict[str, Any]]:
        """Return a result for each fork: the sandbox, or why it did not start. Raises Problem, ApiError."""
        have = self._have
        asked = read(body, NewForks)
        if not 0 < asked.count <= _MOST:
            raise Problem(400, f"count: must be from 1 to {_MOST}")
        timeout = checked_timeout(asked.timeout)
        until = asyncio.get_running_loop().time() + CREATE_WAIT
        spec = await spec_to_copy(sandbox, have, what="fork")
        checkpoint = await begin_checkpoint(sandbox, have, lasts=_LASTS)
        assert have.temporary is not None
        made: list[Sandbox] = []

        async def one() -> dict[str, Any]:
            try:
                began = await self._one(
                    spec, checkpoint, timeout=timeout, until=until, made=made, receive=receive, who=who
                )
            except Problem as problem:
                return {"error": problem.document()}
            except ApiError as error:
                return {"error": {"code": error.status, "message": error.detail}}
            return {"sandbox": self._begun(began)}

        try:
            checkpoint = await written(checkpoint, have, within=_WRITTEN_WITHIN, what="the fork")
            results = await asyncio.gather(*(one() for _ in range(asked.count)))
        finally:
            have.temporary.delete(checkpoint)
            note(id=id_of(sandbox), sandbox=sandbox.id, made=[each.id for each in made])
        if has_hung_up(receive):
            note(left=True)
            for each in made:
                have.lifecycle.ends.delete(each, message="the caller left before fork was answered")
        return results

    async def _one(
        self,
        spec: Spec,
        checkpoint: Checkpoint,
        *,
        timeout: int,
        until: float,
        made: list[Sandbox],
        receive: Receive,
        who: Tenant,
    ) -> Sandbox:
        within = until - asyncio.get_running_loop().time()
        hold = min(HOLD, within)
        began = await begin_like(
            spec,
            checkpoint,
            timeout=timeout,
            key=None,
            continues=None,
            receive=receive,
            have=self._have,
            who=who,
            hold=hold,
        )
        made.append(began)
        await started(began, receive=receive, have=self._have, hold=hold, within=within)
        await self._ready(began, receive=receive, until=until)
        return began
