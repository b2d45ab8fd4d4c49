"""Decides which create gets which instance and what to start: `step` takes an event and returns the effects.

This core alone owns waiting creates and starts in progress; slots.py owns the slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandlot_contract.ids import InstanceId
from sandlot_contract.verdicts import SandboxVerdict

from .demand import Demand, Seen
from .instances import Instance
from .matching import Matching
from .slots import Slots
from .starts import Ask, Start, StartReport, Starts
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

_TURNS = 4  # times `start_timeout`: the limit for a start that gets neither its turn nor capacity
_LOOK_EVERY = 1.0  # seconds: a pool's start that was counted on may have failed without a report


@dataclass(frozen=True, slots=True)
class SupplySettings:
    """Times in seconds. `max_starts` bounds the cold starts in flight, `max_waiting` the creates in the queue."""

    max_starts: int = 8
    max_waiting: int = 2000
    start_timeout: float = 60.0  # from when the backend has begun a start
    spare_seconds: float = 30.0  # how long an instance of no pool is kept for the next create
    attempts: int = 2  # failed starts after which a create fails


class SupplyCore:
    """The state machine of starts and waiting creates.

    A ready instance goes to the create that it was started for, which the backend's record names already; to the one of
    its template that has waited longest if that create has left or another one's start is overdue; else into the ready
    queue. `start_timeout` counts from when the backend begins a start, because many at once wait for each other.
    """

    def __init__(self, *, settings: SupplySettings, slots: Slots, seen: Seen) -> None:
        self.slots = slots
        self._settings = settings
        self._seen = seen
        self._line: WaitList[Ask] = WaitList()
        self._waiters: dict[AskId, Waiter[Ask]] = {}
        self._starts = Starts()
        self._demand = Demand(line=self._line, starts=self._starts, seen=seen)
        self._matching = Matching(
            slots=slots, line=self._line, seen=seen, spare_seconds=settings.spare_seconds
        )
        self._blocked_until: float | None = None
        self._refusal: LaunchRefused | None = None  # why the backend starts nothing now
        self._look_at: float | None = None
        self._now = 0.0
        self._effects: list[Effect] = []
        self._to_pump = False

    def step(self, event: Event, now: float) -> Sequence[Effect]:
        """Apply an event and return the effects to carry out. `now` in seconds, on the clock of `Seen.begun`."""
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
        """Return when the next `Looked` is due if no other event comes first."""
        times = (self._starts.next_due(), self._blocked_until, self._look_at, self._matching.next_due())
        return min((at for at in times if at is not None), default=None)

    def shed(self, pool: str) -> Instance | None:
        """Remove one ready instance of this pool and return it."""
        return self._matching.shed(pool)

    def position(self, ask: AskId) -> int:
        """Return the ask's place in the queue, 1 for the next or for one that no longer waits."""
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
        instance = self._matching.take(key, pool=event.pool, tenant=event.tenant)
        if instance is not None:
            self._effects.append(Grant(event.ask, instance, pool_hit=True, queued=0.0, start=0.0))
            return
        if not event.again and self._line.is_full(event.tenant, limit=self._settings.max_waiting):
            position = len(self._line) + 1
            retry_after = min(
                60.0, max(1.0, self._matching.mean_start * position / self._settings.max_starts)
            )
            self._effects.append(Refuse(event.ask, QueueFull(position=position, retry_after=retry_after)))
            return
        refusal = self._refusal
        if refusal is not None and not event.patient and self._demand.unmet(key) >= 0:
            self._effects.append(Refuse(event.ask, _cannot_start(refusal)))
            return
        waiter = Waiter(event.template, key, event.tenant, Ask(event.ask, self._now), waiting=False)
        self._line.add(waiter, front=event.again)
        self._waiters[event.ask] = waiter
        self._to_pump = event.at_once

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

    # Instances.

    def _offered(self, instance: Instance) -> None:
        start = self._starts.arrived(instance.id, Offered(instance), now=self._now)
        waiter = self._matching.waiter_for(instance, start, now=self._now)
        if waiter is not None:
            self._serve(waiter, instance)
        else:
            self._matching.keep(instance, now=self._now)
            self._effects.append(Prime(instance.address))

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

    def _gone(self, instance_id: InstanceId, event: Lost | Taken) -> None:
        self._matching.forget(instance_id)
        start = self._starts.arrived(instance_id, event, now=self._now)
        if start is not None:
            self._fail_if_lost(start, event)

    def _fail_if_lost(self, start: Start, told: StartReport) -> None:
        # Only an owned instance ends with such a verdict: another gateway's create had it. Counted as failed starts,
        # two such ends would fail a create that waits here, with the other sandbox's verdict.
        if isinstance(told, Lost) and not told.had_owner:
            error = StartFailed(told.message, verdict=told.verdict, error_type=told.verdict.upper())
            self._failed(start, error, final=told.verdict == SandboxVerdict.IMAGE_PULL)

    # Starts.

    def _launched(self, start_id: StartId, instance_id: InstanceId) -> None:
        due = self._now + self._settings.start_timeout
        early = self._starts.launched(start_id, instance_id, now=self._now, due=due)
        if early is not None:
            # Otherwise its create would wait for this start until the start times out.
            self._fail_if_lost(self._starts.over(start_id), early)
        else:
            self._give_up_unwanted(self._starts[start_id])

    def _refused(self, event: LaunchRefused) -> None:
        self._starts.over(event.start)
        if self._blocked_until is None:
            self._blocked_until = self._now + event.retry_after
        if event.refuse:
            self._refusal = event
            on_the_way = self._demand.on_the_way()
            for key in self._line.in_turn():
                # Creates that wait for a start in progress keep waiting.
                while self._line.waiting(key) > on_the_way[key] and (waiter := self._line.head(key)):
                    self._end(waiter, _cannot_start(event))

    def _failed(self, start: Start, error: StartFailed, *, final: bool) -> None:
        waiter = start.waiter or self._line.head(start.key)
        if waiter is None or not waiter.waiting:
            return  # its create has left, and the waiting ones have starts of their own
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
        if self._seen.begun(start.instance_id) is None and self._demand.unmet(start.key) < 0:
            self._destroy(start)

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
        for instance_id in self._matching.overdue(now):
            self.slots.discard(instance_id)
            self._effects.append(Destroy(instance_id))
        for start in self._starts:
            if start.instance_id is not None and start.due <= now:
                self._overdue(start, start.instance_id)

    def _overdue(self, start: Start, instance_id: InstanceId) -> None:
        begun = self._seen.begun(instance_id)
        timeout = self._settings.start_timeout
        start.due = min((self._now if begun is None else begun) + timeout, start.began + _TURNS * timeout)
        if start.due > self._now:
            return
        self._destroy(start)
        waited = self._now - (begun or start.began)
        message = f"the sandbox was not ready {waited:.0f} s after its start"
        self._failed(start, StartFailed(message, error_type="START_FAILED"), final=False)

    def _pump(self) -> None:
        """Begin the starts that the waiting creates still need."""
        if not len(self._line):
            self._look_at = None
            return
        if self._look_at is None:
            self._look_at = self._now + _LOOK_EVERY
        if self._blocked_until is not None:
            return
        for template, waiter in self._demand.missing(max_starts=self._settings.max_starts):
            start = self._starts.begin(template.key, waiter, now=self._now)
            self._effects.append(Launch(start.id, template, waiter.value.id if waiter is not None else None))


def _cannot_start(refusal: LaunchRefused) -> CannotStart:
    return CannotStart(refusal.message, retry_after=refusal.retry_after)
