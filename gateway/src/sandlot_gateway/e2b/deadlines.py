"""Reads and moves the times at which sandboxes end, which only their sidecars know."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from sandlot_gateway.control.services import Services
from sandlot_gateway.sandboxes import Sandbox, Spec
from sandlot_gateway.sidecars import SidecarError, document

from .failures import Problem

MARGIN = 900.0  # seconds from the timeout of a sandbox that is then paused to its deadline
_AT_ONCE = 16  # sidecars asked at the same time for one page of a list
_PATIENCE = 5.0  # seconds, for all sandboxes of a list
_ANSWERS_WITHIN = 1.0  # seconds, for one: else a few that hang would keep the others from being asked
_LAST = 253_402_300_799  # Unix seconds, the end of the year 9999
_LONGEST = 10 * 366 * 86400  # seconds
_SOON = 0.001  # seconds: a timeout of 0 ends the sandbox


@dataclass(frozen=True, slots=True)
class End:
    """When a sandbox ends, by its sidecar. `at`: in Unix seconds, without its margin; None: it has no time limit."""

    at: float | None


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
                end = await self.ask(sandbox)
            if end is not None:
                told[sandbox.id] = end.at

        try:
            async with asyncio.timeout(_PATIENCE):
                await asyncio.gather(*map(one, sandboxes))
        except TimeoutError:
            pass
        return told

    async def ask(self, sandbox: Sandbox) -> End | None:
        """Ask the sidecar when the sandbox ends; None if it does not run, or gives no usable answer within a second."""
        route = self._have.directory.find(sandbox.id)
        if route is None or route.status is not Status.RUNNING:
            return None
        try:
            async with asyncio.timeout(_ANSWERS_WITHIN):
                answer = await self._have.sidecars.get(route, "/v1/state", {})
        except (SidecarError, TimeoutError):
            return None
        state = document(answer)
        if answer.status != 200 or "deadline_at" not in state:
            return None
        at = state["deadline_at"]
        if at is None:
            return End(None)
        if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at <= _LAST:
            return None
        return End(at - margin_of(sandbox.spec))

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
