"""Sandboxes that run one request after the other, reset between two: a bounded number for each tenant and place."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from sandlot_contract.statuses import Status

from sandlot_gateway.engine.errors import ResetFailed
from sandlot_gateway.fusion_option import Place
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.tasks import Tasks

from .groups import CannotCreate, Group, Misconfigured, NoWorker, Worker

_log = logging.getLogger(__name__)
_MOST_WAIT = 1.0  # seconds until a create that found no room is tried again


class Workers:
    """Leases workers. `limit`: per tenant and place; `idle`: seconds after which an unused one is deleted."""

    def __init__(
        self,
        *,
        create: Callable[[Tenant, Place], Awaitable[Sandbox]],
        reset: Callable[[Sandbox], Awaitable[object]],
        delete: Callable[[Sandbox], object],
        has_room: Callable[[Tenant, Sandbox], bool],
        limit: int,
        idle: float,
        idle_at_quota: float = 2.0,
    ) -> None:
        """`create` raises CannotCreate, Misconfigured; `reset` ResetFailed.

        `has_room`: whether the tenant's quotas allow another sandbox such as this one; if not, a worker that is unused
        for `idle_at_quota` seconds leaves its room to other gateways, and to sandboxes of other uses.
        """
        self._create = create
        self._reset = reset
        self._delete = delete
        self._has_room = has_room
        self._limit = limit
        self._idle = idle
        self._idle_at_quota = idle_at_quota
        self._groups: dict[tuple[str, Place], Group] = {}
        self._tasks = Tasks()
        self._sweeper: asyncio.TimerHandle | None = None
        self._draining = False
        self._closed = False

    @asynccontextmanager
    async def lease(self, who: Tenant, place: Place, *, timeout: float) -> AsyncIterator[Worker]:
        """Wait up to `timeout` seconds for a clean worker; reset it afterwards. Raises NoWorker, Misconfigured."""
        group = self._groups.setdefault((who.name, place), Group(who, place))
        group.who = who  # its key decides how many sandboxes the tenant may have
        worker = group.take_free() or await self._wait(group, timeout=timeout)
        try:
            yield worker
        finally:
            self._tasks.spawn(self._recycle(group, worker))

    def drain(self) -> None:
        """Create no worker from now on: requests get those that are there, or NoWorker."""
        self._draining = True
        for group in list(self._groups.values()):
            group.room.set()
            self._settle(group)

    async def close(self, *, timeout: float) -> None:
        """Delete all workers; those of requests that still run when they end."""
        self._closed = True
        self.drain()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for group in list(self._groups.values()):
            while group.free:
                self._discard(group, group.free.pop())
        await self._tasks.close(timeout=timeout)

    async def _wait(self, group: Group, *, timeout: float) -> Worker:
        waiter: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        group.waiting.append(waiter)
        self._start_more(group)
        self._settle(group)
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(waiter)
        except BaseException as error:
            if not waiter.done():
                waiter.cancel()
                group.waiting.remove(waiter)
                self._settle(group)
            elif waiter.exception() is None:  # it came as this request gave up
                self._give(group, waiter.result())
            if isinstance(error, TimeoutError):
                busy = f"all {group.total} sandboxes in which this tenant's code runs are busy"
                raise NoWorker(
                    f"{group.trouble or busy}: send fewer requests at once, or try again"
                ) from None
            raise

    def _start_more(self, group: Group) -> None:
        """Start a worker for each request that waits, up to the limit."""
        while not self._draining and group.total < self._limit and group.starting < len(group.waiting):
            group.total += 1
            group.starting += 1
            self._tasks.spawn(self._start(group))

    async def _start(self, group: Group) -> None:
        worker: Worker | None = None
        begun = asyncio.get_running_loop().time()
        try:
            while worker is None and group.waiting and not self._draining:
                group.room.clear()
                try:
                    worker = Worker(await self._create(group.who, group.place))
                    group.trouble = ""
                    group.starved_since = None
                except CannotCreate as error:
                    group.trouble = str(error)
                    if error.over_quota and self._discard_idle_of(group.who, but=group):
                        continue
                    if group.total > 1:
                        break  # the others serve those that wait
                    since = begun if group.starved_since is None else group.starved_since
                    group.starved_since = since if error.over_quota else None
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(min(error.retry_after, _MOST_WAIT)):
                            await group.room.wait()
                except Misconfigured as error:
                    _log.error("code cannot run in %s: %s", group.place, error)
                    group.fail_all(error)
        finally:
            group.starting -= 1
            if not group.starting:  # a further one that gave up leaves the first one its turn
                group.starved_since = None
            if worker is None:
                group.total -= 1
                self._settle(group)
        if worker is not None:
            self._give(group, worker)

    def _discard_idle_of(self, who: Tenant, *, but: Group) -> bool:
        """Discard the tenant's worker that is unused for longest, and is of no use to `but`; False if there is none."""
        groups = [each for each in self._groups_of(who) if each is not but and each.free]
        if not groups:
            return False
        group = min(groups, key=lambda each: each.free[0].idle_since)
        self._discard(group, group.free.pop(0))
        return True

    async def _recycle(self, group: Group, worker: Worker) -> None:
        sandbox = worker.sandbox
        clean = False
        try:
            if worker.reusable and sandbox.status is Status.RUNNING and not self._closed:
                await self._reset(sandbox)
                clean = True
        except ResetFailed as error:
            _log.info("a sandbox that ran code is replaced: %s", error, extra={"sandbox": sandbox.id})
        finally:
            kept = clean and self._starved(group) is None
            if not kept:
                self._discard(group, worker)
        if kept:
            self._give(group, worker)
        else:
            self._start_in_turn(group)

    def _start_in_turn(self, group: Group) -> None:
        """Start workers of a group that has lost one, after one of a group that has none."""
        if (starved := self._starved(group)) is not None:
            starved.starved_since = None
            starved.room.set()  # its create comes before those of `_start_more`
        self._start_more(group)

    def _give(self, group: Group, worker: Worker) -> None:
        """Give a clean worker to the request that has waited longest, or keep it."""
        if self._closed:
            self._discard(group, worker)
            return
        if group.waiting:
            group.waiting.popleft().set_result(worker)
            return
        worker.idle_since = asyncio.get_running_loop().time()
        group.free.append(worker)
        if self._sweeper is None:
            self._sweep_later()

    def _starved(self, group: Group) -> Group | None:
        """Return the other group of the tenant that has had no worker for longest, since the quota has no room."""
        found = [
            (each.starved_since, number, each)
            for number, each in enumerate(self._groups_of(group.who))
            if each.starved_since is not None and each.waiting and each is not group
        ]
        return min(found)[2] if found and not self._draining else None

    def _discard(self, group: Group, worker: Worker) -> None:
        self._delete(worker.sandbox)
        group.total -= 1
        self._settle(group)

    def _settle(self, group: Group) -> None:
        """Fail those that wait if no worker comes any more, and forget a group of which nothing is left."""
        if self._draining and group.without_worker:
            group.fail_all(NoWorker("the gateway is shutting down"))
        key = (group.who.name, group.place)
        if not group.total and not group.waiting and self._groups.get(key) is group:
            del self._groups[key]

    def _groups_of(self, who: Tenant) -> list[Group]:
        return [group for group in self._groups.values() if group.who.name == who.name]

    def _sweep_later(self) -> None:
        every = min(self._idle / 4, self._idle_at_quota / 2)
        self._sweeper = asyncio.get_running_loop().call_later(every, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        now = asyncio.get_running_loop().time()
        kept = 0
        for group in list(self._groups.values()):
            while group.free and self._is_over(group, group.free[0], now=now):
                self._discard(group, group.free.pop(0))
            kept += len(group.free)
        if kept:
            self._sweep_later()

    def _is_over(self, group: Group, worker: Worker, *, now: float) -> bool:
        unused = now - worker.idle_since
        if unused >= self._idle:
            return True
        # A gateway sees that the quota is used up, but not who waits for it at another one.
        return unused >= self._idle_at_quota and not self._has_room(group.who, worker.sandbox)
