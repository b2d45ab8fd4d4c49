"""Brings warm instances and waiting creates together, and starts new instances when nothing warm fits."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from sandlot_gateway.backends.base import Backend, BackendError, Instance, Promise, Template, Unavailable
from sandlot_gateway.ready import ReadyQueue
from sandlot_gateway.tasks import Tasks
from sandlot_gateway.waiting import Waiter, WaitList

_log = logging.getLogger(__name__)

_OVERDUE = 3.0  # times as long as starts have taken of late
_TURNS = 4  # times `start_timeout` for a start whose turn, or room, does not come

_VERDICT_OF_ERROR = {"IMAGE_PULL_FAILED": "image_pull"}

# Ends that only a sandbox with an owner has: an instance with one of them did start.
_OF_OWNED = frozenset({"deleted", "deadline", "idle", "exited", "reset_failed", "init_killed"})


class QueueFull(Exception):
    """As many creates wait as may; `retry_after` in seconds is a guess from recent starts."""

    def __init__(self, *, position: int, retry_after: float) -> None:
        super().__init__(f"the queue for new sandboxes is full ({position - 1} waiting)")
        self.position = position
        self.retry_after = retry_after


class CannotStart(Exception):
    """Nothing warm fits, and the backend can start nothing at this time; `retry_after` in seconds."""

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StartFailed(Exception):
    """No instance could be started; `verdict` is the sandbox's, `field` names the bad request field if there is one."""

    def __init__(
        self, message: str, *, verdict: str = "start_failed", error_type: str, field: str | None = None
    ) -> None:
        super().__init__(message)
        self.verdict = verdict
        self.error_type = error_type
        self.field = field


@dataclass(slots=True)
class Grant:
    """An instance for one create, and what it cost to get it (seconds)."""

    instance: Instance
    pool_hit: bool
    queued: float
    start: float


@dataclass(slots=True)
class _Ask:
    future: asyncio.Future[Grant]
    asked_at: float
    wanted: Callable[[], Promise] | None = None
    started_at: float | None = None
    starting: bool = False  # a start that is meant for it is under way
    attempts: int = 0


@dataclass(slots=True, eq=False)
class Ticket:
    """A place in the line; `wait` gives the instance, `cancel` gives the place up."""

    _supply: Supply
    _waiter: Waiter[_Ask]

    async def wait(self) -> Grant:
        """Raises StartFailed, CannotStart, or CancelledError when cancelled before it had an instance."""
        return await self._waiter.value.future

    def cancel(self) -> None:
        self._supply.give_up(self._waiter)

    def begin(self) -> None:
        """Start what it waits for, of a ticket that is not `at_once`."""
        self._supply.pump()

    def give_back(self) -> None:
        """Give up the place, or the instance if it has one already."""
        future = self._waiter.value.future
        if not future.done():
            self.cancel()
        elif not future.cancelled() and future.exception() is None:
            self._supply.offer(future.result().instance)

    @property
    def position(self) -> int:
        return self._supply.position(self._waiter)


@dataclass(slots=True)
class _Start:
    key: str
    timer: asyncio.TimerHandle
    waiter: Waiter[_Ask] | None  # whom it is meant for
    began: float = field(default_factory=time.monotonic)


class Supply:
    """One per gateway. `max_starts` bounds the cold starts in flight, `max_waiting` the creates in the line.

    An instance that is ready goes to the create that it was started for, since the backend's record says so already;
    to the longest waiting one of its template when that has gone, or when a start of its own is overdue. With nobody
    waiting it joins the ready queue. One that belongs to no pool stays there for `spare_seconds`.
    `start_timeout` counts from when the backend has begun a start: many at once wait there for each other, and those
    that were given up for it would be asked for again, behind the others.
    `prime` is given the address of each that joins, so that its claim need not wait for a connection.
    """

    def __init__(
        self,
        *,
        backend: Backend,
        ready: ReadyQueue,
        max_starts: int = 8,
        max_waiting: int = 2000,
        start_timeout: float = 60.0,
        spare_seconds: float = 30.0,
        attempts: int = 2,
        prime: Callable[[str], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self.ready = ready
        self._backend = backend
        self._max_starts = max_starts
        self._max_waiting = max_waiting
        # A tenant that fills the line does not keep the others out of it.
        self._sure_of_tenant = min(max_waiting, max(1, max_waiting // 10))
        self._start_timeout = start_timeout
        self._spare_seconds = spare_seconds
        self._attempts = attempts
        self._prime = prime
        self._waiters: WaitList[_Ask] = WaitList()
        self._launching: Counter[str] = Counter()  # launch() has not returned yet, by template key
        self._starting: dict[str, _Start] = {}  # launched, not ready yet
        self._early: set[str] = set()  # ready before launch() had returned
        self._spares: dict[str, asyncio.TimerHandle] = {}
        self._tasks = Tasks()
        self._blocked: asyncio.TimerHandle | None = None
        self._refusal: Unavailable | None = None  # why nothing can be started while it is blocked
        self._tick: asyncio.TimerHandle | None = None
        self._mean_start = 1.0
        self._closed = False

    # Asked by creates.

    def ticket(
        self,
        *,
        template: Template,
        tenant: str,
        pool: str | None = None,
        wanted: Callable[[], Promise] | None = None,
        again: bool = False,
        patient: bool = False,
        at_once: bool = True,
    ) -> Ticket:
        """Take a warm instance, or a place in the line; QueueFull, CannotStart at once when there is none.

        `wanted`: what a backend may note of the sandbox with a start that is meant for it.
        `again`: the caller has lost its instance to somebody else and goes to the front, however full it is.
        `patient`: it waits until starts can be again. `at_once`: else a start waits for the ticket's `begin`.
        """
        loop = asyncio.get_running_loop()
        key = template.key
        ask = _Ask(loop.create_future(), time.monotonic(), wanted)
        waiter = Waiter(template, key, tenant, ask, waiting=False)
        instance = self._take(key, pool, tenant)
        if instance is not None:
            waiter.value.future.set_result(Grant(instance, pool_hit=True, queued=0.0, start=0.0))
        else:
            if not again and self._is_full(tenant):
                position = len(self._waiters) + 1
                retry_after = min(60.0, max(1.0, self._mean_start * position / self._max_starts))
                raise QueueFull(position=position, retry_after=retry_after)
            refusal = self._refusal
            if refusal is not None and not patient and self._on_the_way()[key] <= self._waiters.waiting(key):
                raise CannotStart(str(refusal), retry_after=refusal.retry_after)
            self._waiters.add(waiter, front=again)
            if at_once:
                self.pump()
        return Ticket(self, waiter)

    def _is_full(self, tenant: str) -> bool:
        """Each tenant has a few places for sure, beyond `max_waiting` when others have taken these."""
        is_full = len(self._waiters) >= self._max_waiting
        return is_full and self._waiters.of_tenant(tenant) >= self._sure_of_tenant

    def give_up(self, waiter: Waiter[_Ask]) -> None:
        """Leave the line, with a start that has not begun. One that has its instance keeps it, and has to offer it again."""
        self._waiters.remove(waiter)
        waiter.value.future.cancel()
        own = next((name for name, start in self._starting.items() if start.waiter is waiter), None)
        if own is not None:
            self._give_up_start(own, waiter.key)

    def _give_up_start(self, instance_id: str, key: str) -> None:
        """Of one that has left, unless it has begun or somebody else waits for it."""
        if self._backend.begun(instance_id) is not None:
            return
        if self._on_the_way()[key] > self._waiters.waiting(key):
            # Its turn would come before those of others, for nobody.
            self._forgotten(instance_id)
            self._tasks.spawn(self._backend.destroy(instance_id))
            self.pump()

    def position(self, waiter: Waiter[_Ask]) -> int:
        return self._waiters.position(waiter)

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    @property
    def starting(self) -> int:
        return self._launching.total() + len(self._starting)

    # Told by webhooks and the backend.

    def offer(self, instance: Instance) -> None:
        """This instance is ready and nobody's."""
        if self._closed:
            return
        start = self._starting.pop(instance.id, None)
        took = 0.0
        if start is not None:
            start.timer.cancel()
            took = time.monotonic() - start.began
            self._mean_start += 0.2 * (took - self._mean_start)
        elif self._launching.total():
            self._early.add(instance.id)
        waiter = self._whose(start) or self._next_for(instance)
        if waiter is not None:
            self._waiters.serve(waiter)
            self.forget(instance.id)
            ask = waiter.value
            now = time.monotonic()
            since = ask.started_at or now
            if (begun := self._backend.begun(instance.id)) is not None:
                since = min(now, max(since, begun))
            queued = since - ask.asked_at
            start = now - ask.asked_at - queued
            ask.future.set_result(Grant(instance, pool_hit=False, queued=queued, start=start))
            if instance.pool is not None:
                self._backend.nudge(instance.pool)
        elif self.ready.put(instance):
            if self._prime is not None:
                self._tasks.spawn(self._prime(instance.address))
            if instance.pool is None:
                loop = asyncio.get_running_loop()
                self._spares[instance.id] = loop.call_later(self._spare_seconds, self._expire, instance.id)
        self.pump()

    def lost(self, instance_id: str, *, verdict: str, message: str) -> None:
        """This instance is gone, or could not start."""
        if verdict in _OF_OWNED:
            # Another gateway's create had it. Two such ends, taken for failed starts, would end a create that waits
            # here, with the other one's verdict.
            self.taken(instance_id)
        elif (start := self._forgotten(instance_id)) is not None:
            error = StartFailed(message, verdict=verdict, error_type=verdict.upper())
            self._start_failed(start.key, start.waiter, error, final=verdict == "image_pull")
        self.pump()

    def taken(self, instance_id: str) -> None:
        """This instance has an owner, maybe by another gateway: whoever waits for its start waits for another."""
        start = self._forgotten(instance_id)
        if start is not None:
            if start.waiter is not None:
                start.waiter.value.starting = False
            self.pump()

    def forget(self, instance_id: str) -> Instance | None:
        """Take an instance out of the ready queue without judging it."""
        spare = self._spares.pop(instance_id, None)
        if spare is not None:
            spare.cancel()
        return self.ready.discard(instance_id)

    def shed(self, pool: str) -> str | None:
        """Take one ready instance of this pool out for good; see Events.give_up."""
        specs = [status.spec for status in self._backend.pools() if status.spec.name == pool]
        instance = self.ready.shed(pool, keep=specs[0].template.key if specs else None)
        return instance.id if instance is not None else None

    def capacity_freed(self) -> None:
        """Something ended: a start that was refused for want of room may go through now."""
        self._refusal = None
        if self._blocked is not None:
            self._blocked.cancel()
            self._blocked = None
        self.pump()

    async def close(self) -> None:
        """Give everybody in the line a cancellation and wait for starts that are under way."""
        self._closed = True
        for timer in (self._blocked, self._tick, *self._spares.values()):
            if timer is not None:
                timer.cancel()
        for start in self._starting.values():
            start.timer.cancel()
        for key in self._waiters.in_turn():
            while (waiter := self._waiters.pop(key)) is not None:
                waiter.value.future.cancel()
        await self._tasks.close()

    # Inside.

    def _forgotten(self, instance_id: str) -> _Start | None:
        """Take an instance out of everything; its start, if it was not over."""
        self.forget(instance_id)
        start = self._starting.pop(instance_id, None)
        if start is not None:
            start.timer.cancel()
        return start

    def _owner(self, pool: str) -> str | None:
        """Whose this pool is. What is left of one that is gone is as good as shared: nobody has used it."""
        spec = self._backend.pool(pool)
        return spec.owner if spec is not None else None

    def _next_for(self, instance: Instance) -> Waiter[_Ask] | None:
        """Who has waited longest of those that may have it."""
        owner = self._owner(instance.pool) if instance.pool is not None else None
        key = instance.template.key
        return self._waiters.head(key) if owner is None else self._waiters.first_of(key, owner)

    def _take(self, key: str, pool: str | None, tenant: str) -> Instance | None:
        def allowed(name: str) -> bool:
            return self._owner(name) in (None, tenant)

        instance = self.ready.take(key, pool=pool, allowed=allowed) if pool is not None else None
        instance = instance or self.ready.take(key, allowed=allowed)
        if instance is None:
            return None
        spare = self._spares.pop(instance.id, None)
        if spare is not None:
            spare.cancel()
        if instance.pool is not None:
            self._backend.nudge(instance.pool)
        return instance

    def _expire(self, instance_id: str) -> None:
        self._spares.pop(instance_id, None)
        if self.ready.discard(instance_id) is not None:
            self._tasks.spawn(self._backend.destroy(instance_id))

    def pump(self) -> None:
        """Start as many instances as creates wait for, beyond those that are on their way already."""
        if self._closed or not len(self._waiters):
            return
        if self._tick is None:
            # A pool's own start that was counted on may have failed without a word: look again now and then.
            self._tick = asyncio.get_running_loop().call_later(1.0, self._look_again)
        if self._blocked is not None:
            return
        on_the_way = self._on_the_way()
        for key in self._waiters.in_turn():
            while self.starting < self._max_starts and on_the_way[key] < self._waiters.waiting(key):
                line = self._waiters.in_line(key)
                if not line:
                    break
                waiter = self._uncovered(line)
                if waiter is not None:
                    waiter.value.starting = True
                on_the_way[key] += 1
                self._launching[key] += 1
                self._tasks.spawn(self._launch(line[0].template, waiter))

    def _uncovered(self, line: list[Waiter[_Ask]]) -> Waiter[_Ask] | None:
        """The first that no start is meant for, nor one of its tenant's own pools."""
        own = self._own_starts()
        for waiter in line:
            if waiter.value.starting:
                continue
            if not own[waiter.key, waiter.tenant]:
                return waiter
            own[waiter.key, waiter.tenant] -= 1
        return None

    def _own_starts(self) -> Counter[tuple[str, str | None]]:
        """How many starts of pools are under way, by template and owner."""
        starts: Counter[tuple[str, str | None]] = Counter()
        for status in self._backend.pools():
            starts[status.spec.template.key, status.spec.owner] += status.starting
        return starts

    def _on_the_way(self) -> Counter[str]:
        """How many starts of each template are under way that somebody who waits may have."""
        pool_starts: Counter[str] = Counter()
        for (key, owner), starting in self._own_starts().items():
            # A tenant's own pool starts for its creates only: others must not count on it.
            for_these = starting if owner is None else min(starting, self._waiters.waiting_of(key, owner))
            pool_starts[key] += for_these
        return self._launching + Counter(start.key for start in self._starting.values()) + pool_starts

    def _refuse(self, error: Unavailable) -> None:
        """Tell those who wait for no start that is under way."""
        self._refusal = error
        on_the_way = self._on_the_way()
        for key in self._waiters.in_turn():
            while self._waiters.waiting(key) > on_the_way[key] and (waiter := self._waiters.pop(key)):
                waiter.value.future.set_exception(CannotStart(str(error), retry_after=error.retry_after))

    def _look_again(self) -> None:
        self._tick = None
        self.pump()

    async def _launch(self, template: Template, waiter: Waiter[_Ask] | None) -> None:
        """`waiter`: whom it is meant for."""
        key = template.key
        loop = asyncio.get_running_loop()
        wanted: Promise | None = None
        if waiter is not None:
            waiter.value.started_at = waiter.value.started_at or time.monotonic()
            wanted = waiter.value.wanted() if waiter.value.wanted is not None else None
        try:
            instance = await self._backend.launch(template, wanted=wanted)
        except Unavailable as error:
            self._landed(key)
            if waiter is not None:
                waiter.value.starting = False
            if self._blocked is None:
                self._blocked = loop.call_later(error.retry_after, self.capacity_freed)
            if error.refuse:
                self._refuse(error)
        except BackendError as error:
            self._landed(key)
            failed = StartFailed(
                str(error),
                verdict=_VERDICT_OF_ERROR.get(error.error_type, "start_failed"),
                error_type=error.error_type,
                field=error.field,
            )
            self._start_failed(key, waiter, failed, final=True)
            self.pump()
        except Exception as error:
            self._landed(key)
            _log.exception("a start failed in an unexpected way")
            failed = StartFailed(f"the backend failed: {error}", error_type="START_FAILED")
            self._start_failed(key, waiter, failed, final=True)
            self.pump()
        else:
            if instance.id not in self._early:
                timer = loop.call_later(self._start_timeout, self._overdue, instance.id)
                self._starting[instance.id] = _Start(key, timer, waiter)
            self._early.discard(instance.id)
            self._landed(key)
            if waiter is not None and waiter.value.future.cancelled() and instance.id in self._starting:
                self._give_up_start(instance.id, key)

    def _landed(self, key: str) -> None:
        self._launching[key] -= 1
        if not self._launching[key]:
            del self._launching[key]
        if not self._launching:
            self._early.clear()

    def _overdue(self, instance_id: str) -> None:
        start, now = self._starting[instance_id], time.monotonic()
        begun = self._backend.begun(instance_id)
        due = (now if begun is None else begun) + self._start_timeout
        left = min(due, start.began + _TURNS * self._start_timeout) - now
        if left > 0:
            start.timer = asyncio.get_running_loop().call_later(left, self._overdue, instance_id)
            return
        self._tasks.spawn(self._backend.destroy(instance_id))
        message = f"the sandbox was not ready {now - (begun or start.began):.0f} s after its start"
        self.lost(instance_id, verdict="start_failed", message=message)

    def _whose(self, start: _Start | None) -> Waiter[_Ask] | None:
        """Whom an instance was started for, unless it has gone or somebody has waited much longer than starts take."""
        if start is None or start.waiter is None or not start.waiter.waiting:
            return None
        head = self._waiters.head(start.key)
        since = head.value.started_at if head is not None else None
        overdue = since is not None and time.monotonic() - since > _OVERDUE * self._mean_start
        return None if overdue else start.waiter

    def _start_failed(self, key: str, meant: Waiter[_Ask] | None, error: StartFailed, *, final: bool) -> None:
        waiter = meant or self._waiters.head(key)
        if waiter is None:
            return
        waiter.value.starting = False
        if not waiter.waiting:
            return  # nobody waits for that start any more, and those who wait have their own
        waiter.value.attempts += 1
        if final or waiter.value.attempts >= self._attempts:
            self._waiters.remove(waiter)
            waiter.value.future.set_exception(error)
