"""Decides which create gets which instance and what to start: `step` takes an event and returns the effects.

This core alone owns waiting creates and starts in progress; slots.py owns the slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template

from .demand import Demand, Seen
from .evictions import Evictions
from .failed_starts import FailedStarts
from .fair_queue import Schedule, equal
from .instances import Instance
from .matching import Matching
from .refusals import Refusals
from .slots import Slots
from .starts import Ask, Starts
from .supply_events import (
    Asked,
    AskedTogether,
    AskId,
    CameBack,
    Destroy,
    Destroyed,
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
    Refuse,
    RoomMade,
    StartId,
    Taken,
    Withdrawn,
    queue_full,
)
from .supply_settings import SupplySettings
from .template_line import Waiter
from .waiting import WaitList
from .waiting_asks import WaitingAsks

_LOOK_EVERY = 1.0  # seconds: no report may come of a pool's failed start, or of an image that a node has got


class SupplyCore:
    """The state machine of starts and waiting creates.

    A ready instance goes to the create that it was started for, which the backend's record names already; to the one of
    its template that has waited longest if that create has left or another one's start is overdue; else into the ready
    queue. `start_timeout` counts from when the backend begins a start, because many at once wait for each other.
    """

    def __init__(
        self, *, settings: SupplySettings, slots: Slots, seen: Seen, schedule: Schedule = equal
    ) -> None:
        self.slots = slots
        self._settings = settings
        self._seen = seen
        self._line = line = WaitList[Ask](schedule)
        self.starts = Starts()
        self._demand = Demand(line=line, starts=self.starts, seen=seen, kind=slots.kind)
        self._matching = Matching(slots=slots, line=line, seen=seen, spare_seconds=settings.spare_seconds)
        self._evictions = Evictions(slots=slots, line=line, demand=self._demand, matching=self._matching)
        self.asks = WaitingAsks(line, self._evictions)
        self.refusals = Refusals()
        self._failed_starts = FailedStarts(
            settings=settings,
            seen=seen,
            slots=slots,
            line=line,
            asks=self.asks,
            starts=self.starts,
            demand=self._demand,
            evictions=self._evictions,
            refusals=self.refusals,
        )
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
            case AskedTogether(asks):
                self._asked_together(asks)
            case Withdrawn(ask):
                self._withdrawn(ask)
            case Launched(start, instance_id):
                self._launched(start, instance_id)
            case LaunchFailed(start, error):
                over = self.starts.over(start)
                self._effects.extend(self._failed_starts.failed(over, error, final=True, now=now))
            case LaunchRefused():
                self._effects.extend(self._failed_starts.refused(event, now=now))
            case Offered(instance, awaits):
                self._offered(instance, awaits)
            case CameBack(instance_id, image):
                if (instance := self._matching.come_back(instance_id, image)) is not None:
                    self._offered(instance)
                self._look_at = now  # other slots of its node may serve creates of that image now
            case Lost(instance_id) | Taken(instance_id):
                self._gone(instance_id, event)
            case Destroyed(instance_id, instance):
                self._evictions.destroyed(instance_id)
                self.refusals.clear(instance)
            case RoomMade(instance):
                self.refusals.clear(instance)
            case Looked():
                self._passed()
        if self._to_pump:
            self._pump()
        return self._effects

    def look_at(self) -> float | None:
        """Return when the next `Looked` is due if no other event comes first."""
        parts = (self.starts, self.refusals, self._matching)
        times = (self._look_at, *(part.next_due() for part in parts))
        return min((at for at in times if at is not None), default=None)

    def shed(self, pool: str) -> Instance | None:
        """Remove one ready instance of this pool and return it."""
        return self._matching.shed(pool)

    def position(self, ask: AskId) -> int:
        """Return the ask's place in the queue, 1 for the next or for one that no longer waits."""
        return self.asks.position(ask)

    def estimated_wait(self, ask: AskId, now: float) -> float | None:
        """Return in how many seconds a waiting ask may have its instance; None if that is unknown."""
        return self.asks.estimated_wait(ask, now=now)

    def outranked(self, tenant: str, run: str, templates: Iterable[Template]) -> bool:
        """Return whether creates of its tenant with a higher priority wait for an instance of such a kind."""
        return self._line.outranked(tenant, run, {self.slots.kind(template) for template in templates})

    @property
    def waiting(self) -> int:
        return len(self._line)

    @property
    def starting(self) -> int:
        return len(self.starts)

    # Asks.

    def _asked(self, event: Asked) -> None:
        key = self.slots.kind(event.template)
        self._to_pump = False
        if hold := self._matching.take(event):
            self._effects.append(Grant(event.ask, hold, pool_hit=True, queued=0.0, start=0.0))
            return
        full = self._line.full(event.tenant, event.run, limit=self._settings.max_waiting)
        if full is not None and not (event.again or event.patient):
            most, ages = self._settings.max_starts, self.starts.ages(self._now)
            wait = self._matching.estimated_wait(full.waiting + 1, max_starts=most, ages=ages)
            self._effects.append(Refuse(event.ask, queue_full(full, retry_after=wait)))
            return
        ask = Ask(event.ask, self._now, avoid=event.avoid, lays_image=event.lays_image)
        waiter = Waiter(event.template, key, event.tenant, ask, event.run, waiting=False)
        refusal = self.refusals.of_all
        if refusal is not None and not event.patient and not self._evictions.cover_one_more(waiter):
            if (evicted := self._evictions.one_for(waiter, self._now)) is None:
                self._effects.append(Refuse(event.ask, refusal.error))
                return
            self._effects.append(Destroy(evicted))
        self.asks.join(waiter, front=event.again, now=self._now)
        self._to_pump = event.at_once

    def _asked_together(self, asks: Sequence[Asked]) -> None:
        self._to_pump = False
        for asked, hold in zip(asks, self._matching.take_all(asks, now=self._now), strict=False):
            self._effects.append(Grant(asked.ask, hold, pool_hit=True, queued=0.0, start=0.0))

    def _withdrawn(self, ask: AskId) -> None:
        if (waiter := self.asks.get(ask)) is None:
            self._to_pump = False
            return
        self.asks.leave(waiter, now=self._now)
        if (own := waiter.value.start) is not None:
            self.starts[own].unwanted = True
            self._effects.extend(self._failed_starts.give_up_unwanted(self.starts[own]))

    # Instances.

    def _offered(self, instance: Instance, awaits: str | None = None) -> None:
        if awaits is not None:
            self._matching.awaited.add(instance.id, awaits)
        start = self.starts.arrived(instance.id, Offered(instance), now=self._now)
        waiter = self._matching.waiter_for(instance, start, now=self._now)
        if (evicted := self._evictions.instead_of_use(instance, self._now)) is not None:
            self._effects.append(Destroy(evicted))
        elif waiter is not None:
            self._serve(waiter, instance)
        else:
            self._matching.keep(instance, now=self._now)
            self._effects.append(Prime(instance.address))

    def _serve(self, waiter: Waiter[Ask], instance: Instance) -> None:
        ask = waiter.value
        self.asks.serve(waiter, now=self._now)
        hold = self.slots.grant(instance)
        since = ask.started_at or self._now
        if (begun := self._seen.begun(instance.id)) is not None:
            since = min(self._now, max(since, begun))
        queued = since - ask.asked_at
        took = self._now - since
        self._effects.append(Grant(ask.id, hold, pool_hit=False, queued=queued, start=took))

    def _gone(self, instance_id: InstanceId, event: Lost | Taken) -> None:
        self._matching.forget(instance_id)
        if (start := self.starts.arrived(instance_id, event, now=self._now)) is not None:
            self._effects.extend(self._failed_starts.reported(start, event, now=self._now))

    # Starts.

    def _launched(self, start_id: StartId, instance_id: InstanceId) -> None:
        self.refusals.begun(self.starts[start_id].key)
        due = self._now + self._settings.start_timeout
        if (early := self.starts.launched(start_id, instance_id, now=self._now, due=due)) is not None:
            # Otherwise its create would wait for this start until the start times out.
            over = self.starts.over(start_id)
            self._effects.extend(self._failed_starts.reported(over, early, now=self._now))
        else:
            self._effects.extend(self._failed_starts.give_up_unwanted(self.starts[start_id]))

    # Time.

    def _passed(self) -> None:
        now = self._now
        self.refusals.passed(now)
        if self._look_at is None or now >= self._look_at:
            self._look_at = None
            self.asks.reschedule(now=now)
            for waiter, instance in self._matching.overlooked(now):
                self._serve(waiter, instance)
        for instance_id in self._matching.overdue(now):
            self.slots.discard(instance_id)
            self._effects.append(Destroy(instance_id))
        self._effects.extend(self._failed_starts.overdue(now=now))

    def _pump(self) -> None:
        """Begin the starts that the waiting creates still need."""
        if not len(self._line):
            self._look_at = None
            return
        self._look_at = self._look_at or self._now + _LOOK_EVERY
        self._effects.extend(map(Destroy, self._evictions.due(self._now)))
        if self.refusals.stop_all:
            return
        most, refusals = self._settings.max_starts, self.refusals
        missing = self._demand.missing(max_starts=most, but=refusals.kinds, one_of=refusals.one_at_a_time)
        for template, waiter in missing:
            start = self.starts.begin(self.slots.kind(template), template, waiter, now=self._now)
            self._effects.append(Launch(start.id, template, waiter.value.id if waiter is not None else None))
