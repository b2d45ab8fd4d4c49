"""Pauses sandboxes at their timeout, those whose create asked for it. Every gateway watches all of them.

Their sidecars end them `MARGIN` seconds later, so that a pause has time, and another gateway if this one dies.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from weakref import WeakValueDictionary

from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.control.services import Services
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.tasks import Tasks

from .deadlines import MARGIN, Deadlines
from .failures import Problem
from .pauses import Due, Pauses

_TICK = 1.0  # seconds between two looks for sandboxes that are due
_ASK_AGAIN = 30.0  # seconds: another gateway may have moved a deadline to an earlier time
_TRY_AGAIN = (10.0, 300.0)  # seconds after a pause that failed, twice as many after each, up to the latter
_ASKED_AT_ONCE = 64  # sidecars; one that hangs has its turn for a second
_WRITTEN_AT_ONCE = 8  # pauses: half of them wait for the checkpoints' four transfers
_SLOT_KEPT = MARGIN / 3  # seconds: one that takes longer goes on without its slot, and leaves others time
_NEVER = (400, 422, 501)  # statuses of failures that another try cannot mend

_log = logging.getLogger(__name__)


class AutoPauses:
    def __init__(self, have: Services, *, deadlines: Deadlines, pauses: Pauses) -> None:
        self._have = have
        self._deadlines = deadlines
        self._pauses = pauses
        self._tasks = Tasks()
        self._asking = asyncio.Semaphore(_ASKED_AT_ONCE)
        self._writing = asyncio.Semaphore(_WRITTEN_AT_ONCE)
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = (
            WeakValueDictionary()
        )  # by tenant, while used
        self._looks: dict[SandboxId, float] = {}  # when each is asked next, on the monotonic clock
        self._moves: Counter[SandboxId] = Counter()  # how often each had its deadline moved here
        self._failures: Counter[SandboxId] = (
            Counter()
        )  # pauses of each that have failed since it was last not due
        self._busy: set[SandboxId] = set()  # being asked or paused
        deadlines.moved = self._moved

    def start(self) -> None:
        self._tasks.spawn(self._watch())

    async def close(self) -> None:
        await self._tasks.close()

    def _moved(self, sandbox: Sandbox) -> None:
        self._moves[sandbox.id] += 1
        self._looks.pop(sandbox.id, None)
        self._failures.pop(sandbox.id, None)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            try:
                self._begin_looks()
            except Exception:
                _log.exception("sandboxes are not paused at their timeout: trying again")

    def _begin_looks(self) -> None:
        watched = {one.id: one for one in self._have.directory.live() if _is_watched(one)}
        kept = watched.keys() | self._busy
        for of_each in (self._looks, self._moves, self._failures):
            for gone in of_each.keys() - kept:
                del of_each[gone]
        now = time.monotonic()
        for sandbox in watched.values():
            if sandbox.id not in self._busy and self._looks.get(sandbox.id, now) <= now:
                self._busy.add(sandbox.id)
                self._tasks.spawn(self._look(sandbox))

    async def _look(self, sandbox: Sandbox) -> None:
        """Ask when the sandbox ends, and pause it if it is over its time."""
        moves = self._moves[sandbox.id]
        wait = _spread(_ASK_AGAIN)
        try:
            async with self._asking:
                end = await self._deadlines.ask(sandbox)
            if end is not None and end.at is not None:
                left = end.at - time.time()
                if left > 0:
                    self._failures.pop(sandbox.id, None)
                    wait = min(left, wait)
                else:
                    wait = await self._pause(sandbox)
        except Exception:
            _log.exception("a sandbox is not paused at its timeout yet", extra={"sandbox": sandbox.id})
        finally:
            self._busy.discard(sandbox.id)
            if self._moves[sandbox.id] == moves:  # else what was told is of before, and it is asked at once
                self._looks[sandbox.id] = time.monotonic() + wait

    async def _pause(self, sandbox: Sandbox) -> float:
        """Pause a sandbox; return in how many seconds it is looked at again, should it still run."""
        first, longest = _TRY_AGAIN
        try:
            async with self._turn(sandbox.tenant):
                if await self._due(sandbox) is not Due.NOW:  # it may have waited for its turn
                    return first
                checkpoint = await self._pauses.write_due(sandbox)
            if checkpoint is None:
                return first
            if await self._pauses.end_due(sandbox, checkpoint, due=lambda: self._due(sandbox)):
                _log.info("a sandbox was paused at its timeout", extra={"sandbox": sandbox.id})
        except (Problem, ApiError, OSError) as error:
            if not sandbox.live:  # paused by another gateway, or ended by its owner
                return first
            again = not (isinstance(error, Problem | ApiError) and error.status in _NEVER)
            when = "yet" if again else "and will not be unless its timeout is set again"
            _log.warning(
                "a sandbox is not paused at its timeout %s: %s", when, error, extra={"sandbox": sandbox.id}
            )
            if not again:
                return float("inf")
            self._failures[sandbox.id] += 1
            return _spread(min(first * 2 ** (self._failures[sandbox.id] - 1), longest))
        return first

    @asynccontextmanager
    async def _turn(self, tenant: str) -> AsyncIterator[None]:
        """Wait for a slot of writing, of which at most half are one tenant's: its slow disks then delay no other's."""
        share = self._shares.get(tenant)
        if share is None:
            share = self._shares[tenant] = asyncio.Semaphore(_WRITTEN_AT_ONCE // 2)
        async with share:
            await self._writing.acquire()
            with ExitStack() as slot:
                slot.callback(self._writing.release)
                timer = asyncio.get_running_loop().call_later(_SLOT_KEPT, slot.close)
                slot.callback(timer.cancel)
                yield

    async def _due(self, sandbox: Sandbox) -> Due:
        end = await self._deadlines.ask(sandbox)
        if end is None:
            return Due.UNKNOWN
        return Due.NOW if end.at is not None and end.at <= time.time() else Due.LATER


def _spread(seconds: float) -> float:
    return seconds * random.uniform(0.75, 1.25)


def _is_watched(sandbox: Sandbox) -> bool:
    return sandbox.spec.auto_pause and sandbox.status is Status.RUNNING
