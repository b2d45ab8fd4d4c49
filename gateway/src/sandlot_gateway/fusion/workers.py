"""Sandboxes that run one request after the other, reset between two: a bounded number for each tenant and place."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sandlot_contract.statuses import Status

from sandlot_gateway.engine.errors import ResetFailed
from sandlot_gateway.fusion_option import Place
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.tasks import Tasks

_log = logging.getLogger(__name__)
_MOST_WAIT = 1.0  # seconds until a create that found no room is tried again


class NoWorker(Exception):
    """Raised when no sandbox is free in time; a later request may find one."""


class CannotCreate(Exception):
    """Raised when a sandbox cannot be created now; `retry_after` in seconds."""

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Misconfigured(Exception):
    """Raised when no wait helps: an operator has to change a setting."""


@dataclass(slots=True)
class Worker:
    """A sandbox that runs one request at a time."""

    sandbox: Sandbox
    reusable: bool = True  # False: what it ran cannot be undone by a reset
    programs: dict[str, str | None] = field(default_factory=dict)  # paths of programs that were looked for
    idle_since: float = 0.0


@dataclass(slots=True)
class _Group:
    """The workers of one tenant and place."""

    who: Tenant
    place: Place
    total: int = 0  # also those that are starting, run a request or are reset
    starting: int = 0
    free: list[Worker] = field(default_factory=list)  # the last used one is the last
    waiting: deque[asyncio.Future[Worker]] = field(default_factory=deque)
    trouble: str = ""  # why the last create failed


class Workers:
    """Leases workers. `limit`: per tenant and place; `idle`: seconds after which an unused one is deleted."""

    def __init__(
        self,
        *,
        create: Callable[[Tenant, Place], Awaitable[Sandbox]],
        reset: Callable[[Sandbox], Awaitable[object]],
        delete: Callable[[Sandbox], object],
        limit: int,
        idle: float,
    ) -> None:
        """`create` raises CannotCreate, Misconfigured; `reset` ResetFailed."""
        self._create = create
        self._reset = reset
        self._delete = delete
        self._limit = limit
        self._idle = idle
        self._groups: dict[tuple[str, Place], _Group] = {}
        self._tasks = Tasks()
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    @asynccontextmanager
    async def lease(self, who: Tenant, place: Place, *, timeout: float) -> AsyncIterator[Worker]:
        """Wait up to `timeout` seconds for a clean worker; reset it afterwards. Raises NoWorker, Misconfigured."""
        group = self._groups.setdefault((who.name, place), _Group(who, place))
        group.who = who  # its key decides how many sandboxes the tenant may have
        worker = self._take_free(group) or await self._wait(group, timeout=timeout)
        try:
            yield worker
        finally:
            self._tasks.spawn(self._recycle(group, worker))

    def _take_free(self, group: _Group) -> Worker | None:
        while group.free:
            worker = group.free.pop()
            if worker.sandbox.status is Status.RUNNING:
                return worker
            group.total -= 1
        return None

    async def _wait(self, group: _Group, *, timeout: float) -> Worker:
        waiter: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        group.waiting.append(waiter)
        self._start_more(group)
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(waiter)
        except BaseException as error:
            if not waiter.done():
                waiter.cancel()
                group.waiting.remove(waiter)
            elif waiter.exception() is None:  # it came as this request gave up
                self._give(group, waiter.result())
            if isinstance(error, TimeoutError):
                busy = f"all {group.total} sandboxes in which this tenant's code runs are busy"
                raise NoWorker(
                    f"{group.trouble or busy}: send fewer requests at once, or try again"
                ) from None
            raise

    def _start_more(self, group: _Group) -> None:
        """Start a worker for each request that waits, up to the limit."""
        while not self._closed and group.total < self._limit and group.starting < len(group.waiting):
            group.total += 1
            group.starting += 1
            self._tasks.spawn(self._start(group))

    async def _start(self, group: _Group) -> None:
        worker: Worker | None = None
        try:
            while worker is None and group.waiting and not self._closed:
                try:
                    worker = Worker(await self._create(group.who, group.place))
                    group.trouble = ""
                except CannotCreate as error:
                    group.trouble = str(error)
                    if group.total > 1:
                        break  # the others serve those that wait
                    await asyncio.sleep(min(error.retry_after, _MOST_WAIT))
                except Misconfigured as error:
                    _log.error("code cannot run in %s: %s", group.place, error)
                    while group.waiting:
                        group.waiting.popleft().set_exception(error)
        finally:
            group.starting -= 1
            if worker is None:
                group.total -= 1
                self._forget_if_empty(group)
        if worker is not None:
            self._give(group, worker)

    async def _recycle(self, group: _Group, worker: Worker) -> None:
        sandbox = worker.sandbox
        clean = False
        try:
            if worker.reusable and sandbox.status is Status.RUNNING and not self._closed:
                await self._reset(sandbox)
                clean = True
        except ResetFailed as error:
            _log.info("a sandbox that ran code is replaced: %s", error, extra={"sandbox": sandbox.id})
        finally:
            if not clean:
                self._discard(group, worker)
        if clean:
            self._give(group, worker)
        else:
            self._start_more(group)

    def _give(self, group: _Group, worker: Worker) -> None:
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

    def _discard(self, group: _Group, worker: Worker) -> None:
        self._delete(worker.sandbox)
        group.total -= 1
        self._forget_if_empty(group)

    def _forget_if_empty(self, group: _Group) -> None:
        key = (group.who.name, group.place)
        if not group.total and not group.waiting and self._groups.get(key) is group:
            del self._groups[key]

    def _sweep_later(self) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(self._idle / 4, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        before = asyncio.get_running_loop().time() - self._idle
        kept = 0
        for group in list(self._groups.values()):
            while group.free and group.free[0].idle_since <= before:
                self._discard(group, group.free.pop(0))
            kept += len(group.free)
        if kept:
            self._sweep_later()

    async def close(self, *, timeout: float) -> None:
        """Delete all workers; those of requests that still run when they end."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for group in list(self._groups.values()):
            while group.free:
                self._discard(group, group.free.pop())
        await self._tasks.close(timeout=timeout)
