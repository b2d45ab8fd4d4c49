"""Decides who gets which instance and what is started: `step` takes what has happened and says what is to be done.

Waiting creates and starts under way are here and nowhere else; whose each slot is says slots.py.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sandlot_contract.template import Template
from sandlot_contract.verdicts import SandboxVerdict

from .instances import Instance, PoolSpec, PoolStatus
from .slots import Phase, Slots
from .starts import Ask, Start, Starts, Told
from .supply_events import (
    Asked,
    AskId,
    CannotStart,
    Destroy,
    Effect,
    Event,
    Grant,
    Launch,
    Launched,
    LaunchFailed,
    LaunchRefused,
    Looked,
    Lost,
    Nudge,
    Offered,
    Prime,
    QueueFull,
    Refuse,
    RoomMade,
    StartFailed,
    StartId,
    Taken,
    Withdrawn,
)
from .waiting import Waiter, WaitList

_OVERDUE = 3.0  # times as long as starts have taken of late
_TURNS = 4  # times `start_timeout` for a start whose turn, or room, does not come
_LOOK_EVERY = 1.0  # seconds: a pool's own start that was counted on may have failed without a word

# Ends that only a sandbox with an owner has: an instance with one of them did start.
_OF_OWNED: frozenset[str] = frozenset(
    {
        SandboxVerdict.DELETED,
        SandboxVerdict.DEADLINE,
        SandboxVerdict.IDLE,
        SandboxVerdict.EXITED,
        SandboxVerdict.RESET_FAILED,
        SandboxVerdict.INIT_KILLED,
        SandboxVerdict.GIVEN_BACK,
    }
)


@dataclass(frozen=True, slots=True)
class SupplySettings:
    """Times in seconds. `max_starts` bounds the cold starts in flight, `max_waiting` the creates in the line."""

    max_starts: int = 8
    max_waiting: int = 2000
    start_timeout: float = 60.0  # from when the backend has begun a start
    spare_seconds: float = 30.0  # that an instance of no pool is kept for the next create
    attempts: int = 2  # starts that may fail for one create


class Seen(Protocol):
    """What the backend says at the moment of the step."""

    def pools(self) -> Sequence[PoolStatus]: ...

    def pool(self, name: str) -> PoolSpec | None: ...

    def begun(self, instance_id: str) -> float | None:
        """When its start began; None while it waits for its turn or for room; 0.0 for one that is not known."""
        ...


class SupplyCore:
    """An instance that is ready goes to the create that it was started for, since the backend's record says so already;
    to the longest waiting one of its template when that has gone, or when a start of its own is overdue. With nobody
    waiting it joins the ready queue. `start_timeout` counts from when the backend has begun a start: many at once wait
    there for each other, and those that were given up for it would be asked for again, behind the others.
    """

    def __init__(self, *, settings: SupplySettings, slots: Slots, seen: Seen) -> None:
        self.slots = slots
        self._settings = settings
        self._seen = seen
        # A tenant that fills the line does not keep the others out of it.
        self._sure_of_tenant = min(settings.max_waiting, max(1, settings.max_waiting // 10))
        self._line: WaitList[Ask] = WaitList()
        self._waiters: dict[AskId, Waiter[Ask]] = {}
        self._starts = Starts()
        # Instances of no pool, and when the next create has come too late for them; the oldest first.
        self._spares: dict[str, float] = {}
        self._blocked_until: float | None = None
        self._refusal: LaunchRefused | None = None  # why nothing can be started while it is blocked
        self._look_at: float | None = None
        self._mean_start = 1.0
        self._now = 0.0
        self._effects: list[Effect] = []
        self._to_pump = False

    def step(self, event: Event, now: float) -> Sequence[Effect]:
        """`now` on the clock of `Seen.begun`, seconds."""
        self._now, self._effects, self._to_pump = now, [], True
        match event:
            case Asked():
                self._asked(event)
            case Withdrawn(ask):
                self._withdrawn(ask)
            case Launched(start, instance_id):
                self._launched(start, instance_id)
            case LaunchFailed(start, error):
                self._failed(self._starts.over(start), error, final=True)
            case LaunchRefused():
                self._refused(event)
            case Offered(instance):
                self._offered(instance)
            case Lost(instance_id) | Taken(instance_id):
                self._gone(instance_id, event)
            case RoomMade():
                self._blocked_until = self._refusal = None
            case Looked():
                self._passed()
        if self._to_pump:
            self._pump()
        return self._effects

    def look_at(self) -> float | None:
        """When the next `Looked` is due, if nothing else happens."""
        own = (self._starts.next_due(), self._blocked_until, self._look_at)
        times = [at for at in own if at is not None]
        if self._spares:
            times.append(next(iter(self._spares.values())))
        return min(times, default=None)

    def shed(self, pool: str) -> Instance | None:
        """Take one ready instance of this pool out for good; of a template that the pool has no more, if there is one."""
        spec = self._seen.pool(pool)
        instance = self.slots.shed(pool, keep=spec.template.key if spec is not None else None)
        if instance is not None:
            self._spares.pop(instance.id, None)
        return instance

    def position(self, ask: AskId) -> int:
        """1 for the next; also for one that waits no more."""
        waiter = self._waiters.get(ask)
        return self._line.position(waiter) if waiter is not None else 1

    @property
    def waiting(self) -> int:
        return len(self._line)

    @property
    def starting(self) -> int:
        return len(self._starts)

    # Asks.

    def _asked(self, event: Asked) -> None:
        key = event.template.key
        self._to_pump = False
        instance = self._take(key, event.pool, event.tenant)
        if instance is not None:
            self._effects.append(Grant(event.ask, instance, pool_hit=True, queued=0.0, start=0.0))
            self._nudge(instance)
            return
        if not event.again and self._is_full(event.tenant):
            position = len(self._line) + 1
            retry_after = min(60.0, max(1.0, self._mean_start * position / self._settings.max_starts))
            self._effects.append(Refuse(event.ask, QueueFull(position=position, retry_after=retry_after)))
            return
        refusal = self._refusal
        if (
            refusal is not None
            and not event.patient
            and self._on_the_way(self._own_starts())[key] <= self._line.waiting(key)
        ):
            self._effects.append(Refuse(event.ask, _cannot_start(refusal)))
            return
        waiter = Waiter(event.template, key, event.tenant, Ask(event.ask, self._now), waiting=False)
        self._line.add(waiter, front=event.again)
        self._waiters[event.ask] = waiter
        self._to_pump = event.at_once

    def _is_full(self, tenant: str) -> bool:
        """Each tenant has a few places for sure, beyond `max_waiting` when others have taken these."""
        is_full = len(self._line) >= self._settings.max_waiting
        return is_full and self._line.of_tenant(tenant) >= self._sure_of_tenant

    def _withdrawn(self, ask: AskId) -> None:
        waiter = self._waiters.get(ask)
        if waiter is None:
            self._to_pump = False
            return
        self._leave(waiter)
        own = waiter.value.start
        if own is not None:
            self._starts[own].unwanted = True
            self._give_up_unwanted(self._starts[own])

    def _leave(self, waiter: Waiter[Ask]) -> None:
        self._line.remove(waiter)
        del self._waiters[waiter.value.id]

    def _take(self, key: str, pool: str | None, tenant: str) -> Instance | None:
        def allowed(name: str) -> bool:
            return self._owner(name) in (None, tenant)

        instance = self.slots.take(key, pool=pool, allowed=allowed) if pool is not None else None
        instance = instance or self.slots.take(key, allowed=allowed)
        if instance is not None:
            self._spares.pop(instance.id, None)
        return instance

    def _owner(self, pool: str) -> str | None:
        """Whose this pool is. A pool that is gone leaves instances that nobody has used: any tenant may have them."""
        spec = self._seen.pool(pool)
        return spec.owner if spec is not None else None

    def _nudge(self, instance: Instance) -> None:
        if instance.pool is not None:
            self._effects.append(Nudge(instance.pool))

    # Instances.

    def _offered(self, instance: Instance) -> None:
        start = self._starts.arrived(instance.id, Offered(instance), now=self._now)
        if start is not None:
            self._mean_start += 0.2 * (self._now - start.began - self._mean_start)
        waiter = self._whose(start) or self._next_for(instance)
        if waiter is not None:
            self._serve(waiter, instance)
        else:
            self.slots.wait(instance)
            self._effects.append(Prime(instance.address))
            if instance.pool is None:
                self._spares[instance.id] = self._now + self._settings.spare_seconds

    def _serve(self, waiter: Waiter[Ask], instance: Instance) -> None:
        ask = waiter.value
        self._line.serve(waiter)
        del self._waiters[ask.id]
        self.slots.grant(instance)
        since = ask.started_at or self._now
        if (begun := self._seen.begun(instance.id)) is not None:
            since = min(self._now, max(since, begun))
        queued = since - ask.asked_at
        took = self._now - since
        self._effects.append(Grant(ask.id, instance, pool_hit=False, queued=queued, start=took))
        self._nudge(instance)

    def _whose(self, start: Start | None) -> Waiter[Ask] | None:
        """Whom an instance was started for, unless it has gone or somebody has waited much longer than starts take."""
        if start is None or start.waiter is None or not start.waiter.waiting:
            return None
        head = self._line.head(start.key)
        since = head.value.started_at if head is not None else None
        overdue = since is not None and self._now - since > _OVERDUE * self._mean_start
        return None if overdue else start.waiter

    def _next_for(self, instance: Instance) -> Waiter[Ask] | None:
        """Who has waited longest of those that may have it."""
        owner = self._owner(instance.pool) if instance.pool is not None else None
        key = instance.template.key
        return self._line.head(key) if owner is None else self._line.first_of(key, owner)

    def _gone(self, instance_id: str, event: Lost | Taken) -> None:
        self._spares.pop(instance_id, None)
        start = self._starts.arrived(instance_id, event, now=self._now)
        if start is not None:
            self._fail_if_lost(start, event)

    def _fail_if_lost(self, start: Start, told: Told) -> None:
        # Another gateway's create had the one whose end only an owner has. Two such ends, taken for failed starts, would
        # end a create that waits here, with the other one's verdict.
        if isinstance(told, Lost) and told.verdict not in _OF_OWNED:
            error = StartFailed(told.message, verdict=told.verdict, error_type=told.verdict.upper())
            self._failed(start, error, final=told.verdict == SandboxVerdict.IMAGE_PULL)

    # Starts.

    def _launched(self, start_id: StartId, instance_id: str) -> None:
        due = self._now + self._settings.start_timeout
        early = self._starts.launched(start_id, instance_id, now=self._now, due=due)
        if early is not None:
            # Its create would wait for this start until the start's time is over.
            self._fail_if_lost(self._starts.over(start_id), early)
        else:
            self._give_up_unwanted(self._starts[start_id])

    def _refused(self, event: LaunchRefused) -> None:
        self._starts.over(event.start)
        if self._blocked_until is None:
            self._blocked_until = self._now + event.retry_after
        if event.refuse:
            self._refusal = event
            on_the_way = self._on_the_way(self._own_starts())
            for key in self._line.in_turn():
                # Those who wait for a start that is under way are not told.
                while self._line.waiting(key) > on_the_way[key] and (waiter := self._line.head(key)):
                    self._end(waiter, _cannot_start(event))

    def _failed(self, start: Start, error: StartFailed, *, final: bool) -> None:
        waiter = start.waiter or self._line.head(start.key)
        if waiter is None or not waiter.waiting:
            return  # its create has left, and those that wait have starts of their own
        waiter.value.attempts += 1
        if final or waiter.value.attempts >= self._settings.attempts:
            self._end(waiter, error)

    def _end(self, waiter: Waiter[Ask], error: CannotStart | StartFailed) -> None:
        self._leave(waiter)
        self._effects.append(Refuse(waiter.value.id, error))

    def _give_up_unwanted(self, start: Start) -> None:
        """Destroy a start that has not begun and that no create needs: its turn would come before those of others."""
        if not start.unwanted or start.instance_id is None:
            return
        if self._seen.begun(start.instance_id) is None and self._is_spare(start.key):
            self._destroy(start)

    def _is_spare(self, key: str) -> bool:
        return self._on_the_way(self._own_starts())[key] > self._line.waiting(key)

    def _destroy(self, start: Start) -> None:
        assert start.instance_id is not None
        self._starts.over(start.id)
        self.slots.discard(start.instance_id)
        self._effects.append(Destroy(start.instance_id))

    # Time.

    def _passed(self) -> None:
        now = self._now
        if self._blocked_until is not None and now >= self._blocked_until:
            self._blocked_until = self._refusal = None
        if self._look_at is not None and now >= self._look_at:
            self._look_at = None
        for instance_id, until in list(self._spares.items()):
            if until > now:
                break
            del self._spares[instance_id]
            slot = self.slots.get(instance_id)
            if slot is not None and slot.phase is Phase.WARM:
                self.slots.discard(instance_id)
                self._effects.append(Destroy(instance_id))
        for start in self._starts:
            if start.instance_id is not None and start.due <= now:
                self._overdue(start, start.instance_id)

    def _overdue(self, start: Start, instance_id: str) -> None:
        begun = self._seen.begun(instance_id)
        timeout = self._settings.start_timeout
        start.due = min((self._now if begun is None else begun) + timeout, start.began + _TURNS * timeout)
        if start.due > self._now:
            return
        self._destroy(start)
        waited = self._now - (begun or start.began)
        message = f"the sandbox was not ready {waited:.0f} s after its start"
        self._failed(start, StartFailed(message, error_type="START_FAILED"), final=False)

    # What is wanted.

    def _pump(self) -> None:
        """Start as many instances as creates wait for, beyond those that are on their way already."""
        if not len(self._line):
            self._look_at = None
            return
        if self._look_at is None:
            self._look_at = self._now + _LOOK_EVERY
        if self._blocked_until is not None:
            return
        own = self._own_starts()
        on_the_way = self._on_the_way(own)
        for key in self._line.in_turn():
            missing = min(
                self._line.waiting(key) - on_the_way[key], self._settings.max_starts - len(self._starts)
            )
            if missing <= 0:
                continue
            line = self._line.in_line(key)
            uncovered = self._uncovered(line, own)
            for _ in range(missing):
                self._launch(line[0].template, uncovered.popleft() if uncovered else None)

    def _launch(self, template: Template, waiter: Waiter[Ask] | None) -> None:
        start = self._starts.begin(template.key, waiter, now=self._now)
        self._effects.append(Launch(start.id, template, waiter.value.id if waiter is not None else None))

    def _uncovered(self, line: list[Waiter[Ask]], own: Counter[tuple[str, str | None]]) -> deque[Waiter[Ask]]:
        """Those that no start is meant for, nor one of their tenant's own pools; the next one first."""
        left = own.copy()
        found: deque[Waiter[Ask]] = deque()
        for waiter in line:
            if waiter.value.start is not None:
                continue
            if left[waiter.key, waiter.tenant]:
                left[waiter.key, waiter.tenant] -= 1
            else:
                found.append(waiter)
        return found

    def _own_starts(self) -> Counter[tuple[str, str | None]]:
        """How many starts of pools are under way, by template and owner."""
        starts: Counter[tuple[str, str | None]] = Counter()
        for status in self._seen.pools():
            starts[status.spec.template.key, status.spec.owner] += status.starting
        return starts

    def _on_the_way(self, own: Counter[tuple[str, str | None]]) -> Counter[str]:
        """How many starts of each template are under way that somebody who waits may have."""
        on_the_way = self._starts.count_by_key()
        for (key, owner), starting in own.items():
            # A tenant's own pool starts for its creates only: others must not count on it.
            on_the_way[key] += starting if owner is None else min(starting, self._line.waiting_of(key, owner))
        return on_the_way


def _cannot_start(refusal: LaunchRefused) -> CannotStart:
    return CannotStart(refusal.message, retry_after=refusal.retry_after)
