"""Decides what becomes of starts that fail, are refused, late or unneeded, and of the creates that they were for."""

from __future__ import annotations

from collections.abc import Iterator

from sandlot_contract.ids import InstanceId
from sandlot_contract.verdicts import SandboxVerdict

from .demand import Demand, Seen
from .evictions import Evictions
from .refusals import Refusals
from .slots import Slots
from .starts import Ask, Start, StartReport, Starts
from .supply_events import CannotStart, Destroy, Effect, LaunchRefused, Lost, Refuse, StartFailed
from .supply_settings import SupplySettings
from .template_line import Waiter
from .waiting import WaitList
from .waiting_asks import WaitingAsks

_TURNS = 4  # times `start_timeout`: the limit for a start that gets neither its turn nor capacity


class FailedStarts:
    """Each method yields the effects to carry out. `now` in seconds, as in `SupplyCore.step`."""

    def __init__(
        self,
        *,
        settings: SupplySettings,
        seen: Seen,
        slots: Slots,
        line: WaitList[Ask],
        asks: WaitingAsks,
        starts: Starts,
        demand: Demand,
        evictions: Evictions,
        refusals: Refusals,
    ) -> None:
        self._settings = settings
        self._seen = seen
        self._slots = slots
        self._line = line
        self._asks = asks
        self._starts = starts
        self._demand = demand
        self._evictions = evictions
        self._refusals = refusals

    def failed(self, start: Start, error: StartFailed, *, final: bool, now: float) -> Iterator[Effect]:
        """End the create of a start that is over, unless it may have another one."""
        waiter = start.waiter or self._line.head(start.key)
        if waiter is None or not waiter.waiting or waiter.template != start.template:
            return  # its create has left, and the waiting ones have starts of their own
        waiter.value.attempts += 1
        if final or waiter.value.attempts >= self._settings.attempts:
            yield self._end(waiter, error, now=now)

    def reported(self, start: Start, told: StartReport, *, now: float) -> Iterator[Effect]:
        """Handle the report that ended a start: a failure if its instance is lost."""
        # Only an owned instance ends with such a verdict: another gateway's create had it. Counted as failed starts,
        # two such ends would fail a create that waits here, with the other sandbox's verdict.
        if isinstance(told, Lost) and not told.had_owner:
            error = StartFailed(told.message, verdict=told.verdict, error_type=told.verdict.upper())
            yield from self.failed(start, error, final=told.verdict == SandboxVerdict.IMAGE_PULL, now=now)

    def refused(self, event: LaunchRefused, *, now: float) -> Iterator[Effect]:
        """Note a launch call that the backend refused, and end the creates that nothing else will serve if it says so."""
        self._refusals.add(event, self._starts.over(event.start).key, now=now)
        if event.refuse:
            yield from map(Destroy, self._evictions.due(now))
            on_the_way = self._demand.on_the_way()
            for key in self._line.in_turn():
                # Creates that wait for a start in progress, or for the room of an evicted instance, keep waiting.
                covered = on_the_way[key] + self._evictions.in_progress(key)
                for waiter in self._line.in_line(key)[: max(0, self._line.waiting(key) - covered)]:
                    yield self._end(waiter, event.error, now=now)

    def give_up_unwanted(self, start: Start) -> Iterator[Effect]:
        """Destroy a start that has not begun and that no create needs: its turn would come before those of others."""
        if not start.unwanted or start.instance_id is None:
            return
        if self._seen.begun(start.instance_id) is None and self._demand.unmet(start.key) < 0:
            yield self._destroy(start, start.instance_id)

    def overdue(self, *, now: float) -> Iterator[Effect]:
        """Fail the starts that took too long."""
        for start in self._starts:
            if start.instance_id is not None and start.due <= now:
                yield from self._overdue(start, start.instance_id, now=now)

    def _overdue(self, start: Start, instance_id: InstanceId, *, now: float) -> Iterator[Effect]:
        begun, timeout = self._seen.begun(instance_id), self._settings.start_timeout
        start.due = min((now if begun is None else begun) + timeout, start.began + _TURNS * timeout)
        if start.due > now:
            return
        yield self._destroy(start, instance_id)
        message = f"the sandbox was not ready {now - (begun or start.began):.0f} s after its start"
        error = StartFailed(message, error_type="START_FAILED")
        yield from self.failed(start, error, final=False, now=now)

    def _destroy(self, start: Start, instance_id: InstanceId) -> Destroy:
        self._starts.over(start.id)
        self._slots.discard(instance_id)
        return Destroy(instance_id)

    def _end(self, waiter: Waiter[Ask], error: CannotStart | StartFailed, *, now: float) -> Refuse:
        self._asks.leave(waiter, now=now)
        return Refuse(waiter.value.id, error)
