"""Reads and moves the times at which sandboxes end, which only their sidecars know."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from sandlot_gateway.control.services import Services
from sandlot_gateway.sandboxes import Sandbox, Spec
from sandlot_gateway.sidecars import SidecarError, document

from .failures import Problem

MARGIN = 900.0  # seconds from the timeout of a sandbox that is then paused to its deadline
_AT_ONCE = 16  # sidecars asked at the same time for one page of a list
_PATIENCE = 5.0  # seconds, for all sandboxes of a list
_LONGEST = 10 * 366 * 86400  # seconds
_SOON = 0.001  # seconds: a timeout of 0 ends the sandbox


class Deadlines:
    def __init__(self, have: Services) -> None:
        self._have = have
        self.moved: Callable[[Sandbox], object] = lambda sandbox: None  # called once a deadline is set

    async def of(self, sandboxes: Sequence[Sandbox]) -> list[float | None]:
        """Return when they end in Unix seconds; for a sandbox that does not answer in time, by its create."""
        told = await self.told(sandboxes)
        return [told[each.id] if each.id in told else _of_create(each) for each in sandboxes]

    async def told(self, sandboxes: Sequence[Sandbox]) -> dict[SandboxId, float | None]:
        """Return when those end that answer in time; None: no time limit."""
        permits = asyncio.Semaphore(_AT_ONCE)
        told: dict[SandboxId, float | None] = {}

        async def one(sandbox: Sandbox) -> None:
            async with permits:
                await self._ask(sandbox, told)

        try:
            async with asyncio.timeout(_PATIENCE):
                await asyncio.gather(*map(one, sandboxes))
        except TimeoutError:
            pass
        return told

    async def _ask(self, sandbox: Sandbox, told: dict[SandboxId, float | None]) -> None:
        route = self._have.directory.find(sandbox.id)
        if route is not None and route.status is Status.RUNNING:
            try:
                answer = await self._have.sidecars.get(route, "/v1/state", {})
            except SidecarError:
                pass
            else:
                state = document(answer)
                if answer.status == 200 and "deadline_at" in state:
                    at = state["deadline_at"]
                    told[sandbox.id] = None if at is None else at - margin_of(sandbox.spec)

    async def set(self, sandbox: Sandbox, seconds: int, *, only_later: bool = False) -> None:
        """Have the sandbox end `seconds` from now. Raises Problem."""
        if not 0 <= seconds <= _LONGEST:
            raise Problem(400, f"timeout: must be from 0 to {_LONGEST} seconds")
        instance = self._have.lifecycle.instance_of(sandbox)
        if instance is None:
            raise Problem(503, "the sandbox is still starting: try again", headers=[(b"retry-after", b"1")])
        try:
            answer = await self._have.sidecars.set_deadline(
                instance,
                sandbox.id,
                seconds=max(seconds, _SOON) + margin_of(sandbox.spec),
                only_later=only_later,
            )
        except SidecarError as error:
            raise Problem(502, f"the sandbox did not answer: {error}; try again") from error
        if answer.status in (409, 410):
            raise Problem(404, f"the sandbox {sandbox.id} was not found: it has ended")
        if answer.status == 404:
            end = _of_create(sandbox)  # which the sidecar keeps
            if only_later and (end is None or end >= time.time() + seconds):
                return
            text = "timeout: this sandbox's sidecar is of an earlier build, which keeps its deadline: create another"
            raise Problem(501, text)
        if answer.status != 200:
            raise Problem(502, f"the sandbox answered with status {answer.status}; try again")
        self.moved(sandbox)


def margin_of(spec: Spec) -> float:
    """Return the seconds from a sandbox's timeout to its deadline."""
    return MARGIN if spec.auto_pause else 0.0


def _of_create(sandbox: Sandbox) -> float | None:
    """Return when the sandbox ends by what it was created with."""
    timeout = sandbox.spec.timeout
    if timeout is None:
        return None
    return (sandbox.started_at or sandbox.created_at) + timeout - margin_of(sandbox.spec)
