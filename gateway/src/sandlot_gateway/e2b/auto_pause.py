"""Pauses sandboxes at their timeout, those whose create asked for it. Every gateway watches all of them.

Their sidecars end them `MARGIN` seconds later, so that a pause has time, and another gateway if this one dies.
"""

from __future__ import annotations

import asyncio
import logging
import time

from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.control.services import Services
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.tasks import Tasks

from .deadlines import Deadlines
from .failures import Problem
from .pauses import Pauses

_TICK = 1.0  # seconds between two looks for sandboxes that are due
_ASK_AGAIN = 30.0  # seconds: another gateway may have moved a deadline to an earlier time
_TRY_AGAIN = 10.0  # seconds after a pause that failed

_log = logging.getLogger(__name__)


class AutoPauses:
    def __init__(self, have: Services, *, deadlines: Deadlines, pauses: Pauses) -> None:
        self._have = have
        self._deadlines = deadlines
        self._pauses = pauses
        self._tasks = Tasks()
        self._looks: dict[SandboxId, float] = {}  # when each is asked next, on the monotonic clock
        self._pausing: set[SandboxId] = set()
        deadlines.moved = lambda sandbox: self._looks.pop(sandbox.id, None)

    def start(self) -> None:
        self._tasks.spawn(self._watch())

    async def close(self) -> None:
        await self._tasks.close()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            watched = {one.id: one for one in self._have.directory.live() if _is_watched(one)}
            self._looks = {each: at for each, at in self._looks.items() if each in watched}
            now = time.monotonic()
            due = [one for one in watched.values() if self._looks.get(one.id, now) <= now]
            await self._look([one for one in due if one.id not in self._pausing])

    async def _look(self, sandboxes: list[Sandbox]) -> None:
        """Ask when these end, and pause those that are over their time."""
        ends = await self._deadlines.told(sandboxes)
        for sandbox in sandboxes:
            end = ends.get(sandbox.id)  # None: it does not answer, or has no time limit
            left = _ASK_AGAIN if end is None else end - time.time()
            if left > 0:
                self._looks[sandbox.id] = time.monotonic() + min(left, _ASK_AGAIN)
            elif sandbox.id not in self._pausing:
                self._pausing.add(sandbox.id)
                self._tasks.spawn(self._pause(sandbox))

    async def _pause(self, sandbox: Sandbox) -> None:
        try:
            if await self._pauses.pause_due(sandbox, is_due=lambda: self._is_due(sandbox)):
                _log.info("a sandbox was paused at its timeout", extra={"sandbox": sandbox.id})
        except (Problem, ApiError, OSError) as error:
            if sandbox.live:  # not paused by another gateway
                _log.warning(
                    "a sandbox is not paused at its timeout yet: %s", error, extra={"sandbox": sandbox.id}
                )
        finally:
            self._pausing.discard(sandbox.id)
            self._looks[sandbox.id] = time.monotonic() + _TRY_AGAIN

    async def _is_due(self, sandbox: Sandbox) -> bool:
        end = (await self._deadlines.told([sandbox])).get(sandbox.id)
        return end is not None and end <= time.time()


def _is_watched(sandbox: Sandbox) -> bool:
    return sandbox.spec.auto_pause and sandbox.status is Status.RUNNING
