"""Carries out the effects of core/supply.py: futures of waiting creates, backend calls, one timer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from itertools import count
from typing import Any

from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.template import Template

from sandlot_gateway.core.backend import Backend, BackendError, Unavailable
from sandlot_gateway.core.fair_queue import Schedule, equal
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.owners import PendingCreate
from sandlot_gateway.core.reuse import UNBOUND, Binding
from sandlot_gateway.core.slot import Hold, Loss, ReportOutcome, Slot
from sandlot_gateway.core.slots import Slots
from sandlot_gateway.core.supply import SupplyCore
from sandlot_gateway.core.supply_events import (
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
    StartFailed,
    Taken,
    Withdrawn,
)
from sandlot_gateway.core.supply_settings import SupplySettings
from sandlot_gateway.tasks import Tasks

from .images import start_failed
from .tickets import Need, Ticket
from .trouble import Pools, trouble

_log = logging.getLogger(__name__)


class Supply:
    """One per gateway, on the event loop's clock. Calls `prime` with the address of each instance that becomes warm.

    `schedule`: the weights and priorities by which tenants and runs take turns.
    """

    def __init__(
        self,
        *,
        backend: Backend,
        slots: Slots,
        settings: SupplySettings | None = None,
        prime: Callable[[str], Coroutine[Any, Any, None]] | None = None,
        schedule: Schedule = equal,
    ) -> None:
        self._core = SupplyCore(
            settings=settings or SupplySettings(), slots=slots, seen=backend, schedule=schedule
        )
        self.slots = slots
        self.schedule = schedule
        self._backend = backend
        self._prime = prime
        self._numbers = count(1)
        self._futures: dict[AskId, asyncio.Future[Grant]] = {}
        self._wanted: dict[AskId, Callable[[], PendingCreate]] = {}
        self._tasks = Tasks()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._closed = False

    # Calls from creates.

    def ticket(
        self, need: Need, *, again: bool = False, patient: bool = False, at_once: bool = True
    ) -> Ticket:
        """Take a warm instance or a place in the queue. Raises QueueFull or CannotStart at once.

        The flags as in `Asked`.
        """
        ask = AskId(next(self._numbers))
        future = self._futures[ask] = asyncio.get_running_loop().create_future()
        if need.wanted is not None:
            self._wanted[ask] = need.wanted
        self._step(need.asked(ask, again=again, patient=patient, at_once=at_once))
        if future.done():
            future.result()  # raises the refusal
        return Ticket(self, ask, future)

    def together(self, needs: Sequence[Need]) -> list[Ticket] | None:
        """Take a warm instance for each of them, at once; None, and nothing taken, if there is not one for every one."""
        asks = [need.asked(AskId(next(self._numbers))) for need in needs]
        loop = asyncio.get_running_loop()
        futures = {asked.ask: loop.create_future() for asked in asks}
        self._futures.update(futures)
        self._step(AskedTogether(tuple(asks)))
        tickets = [Ticket(self, ask, future) for ask, future in futures.items()]
        if all(future.done() for future in futures.values()):
            return tickets
        for ask in futures:
            self._settle(ask)
        return None

    def withdraw(self, ask: AskId) -> None:
        if (future := self._settle(ask)) is not None:
            future.cancel()
            self._step(Withdrawn(ask))

    def look(self) -> None:
        """Begin the starts that waiting creates need."""
        self._step(Looked())

    def position(self, ask: AskId) -> int:
        return self._core.position(ask)

    def estimated_wait(self, ask: AskId) -> float | None:
        return self._core.estimated_wait(ask, self._now())

    def outranked(self, tenant: str, run: str, templates: Iterable[Template]) -> bool:
        """Return whether creates of its tenant with a higher priority wait for an instance of such a kind."""
        return self._core.outranked(tenant, run, templates)

    def trouble(self, ask: AskId, pools: Pools | None) -> str | None:
        return trouble(self._core, self._backend, ask, pools)

    @property
    def waiting(self) -> int:
        return self._core.waiting

    @property
    def starting(self) -> int:
        return self._core.starting

    # Reports from sidecars and the backend.

    def report_warm(self, instance: Instance, generation: int, binding: Binding = UNBOUND) -> ReportOutcome:
        """Handle a sidecar's report that it is ready without an owner."""
        heard = self.slots.report_warm(instance, generation, binding)
        if heard is ReportOutcome.NEWS:
            self._step(Offered(instance))
        return heard

    def report_owned(
        self,
        instance: Instance,
        generation: int,
        sandbox_id: SandboxId | None,
        binding: Binding = UNBOUND,
    ) -> ReportOutcome:
        """Handle a sidecar's report that this sandbox owns it, perhaps through another gateway."""
        heard = self.slots.report_owned(instance, generation, sandbox_id, binding)
        if heard is ReportOutcome.NEWS:
            self._step(Taken(instance.id))
        return heard

    def put_back(self, hold: Hold, *, binding: Binding | None = None, awaits: str | None = None) -> bool:
        """Return the slot that a create no longer needs, or may not have (`binding`); False: it has none any more.

        `awaits`: the image that its node prepares for this create, which calls `came_back` after that.
        """
        instance = self.slots.holds.put_back(hold, binding=binding)
        if instance is not None:
            self._step(Offered(instance, awaits))
        return instance is not None

    def came_back(self, instance_id: InstanceId, image: str) -> None:
        self._step(CameBack(instance_id, image))

    def lost(self, instance_id: InstanceId, loss: Loss) -> Slot | None:
        """Handle the loss of an instance and return its slot as it was."""
        slot = self.slots.lost(instance_id, loss)
        self._step(Lost(instance_id, loss.verdict, loss.message or loss.verdict))
        return slot

    def capacity_freed(self, instance: Instance | None) -> None:
        """Retry starts that were rejected for lack of what this instance, or an unknown one, had."""
        self._step(RoomMade(instance))

    def shed(self, pool: str) -> InstanceId | None:
        """Remove one ready instance of this pool; see Events.give_up."""
        return instance.id if (instance := self._core.shed(pool)) is not None else None

    async def close(self) -> None:
        """Cancel all waiting creates and wait for starts in progress."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for future in self._futures.values():
            future.cancel()
        await self._tasks.close()

    # Inside.

    def _step(self, event: Event) -> None:
        if self._closed:
            return
        for effect in self._core.step(event, self._now()):
            self._act(effect)
        self._arm()

    def _act(self, effect: Effect) -> None:
        match effect:
            case Grant(ask, hold):
                if (future := self._settle(ask)) is not None:
                    future.set_result(effect)
                if (pool := hold.instance.pool) is not None:
                    self._backend.nudge(pool)
            case Refuse(ask, error):
                if (future := self._settle(ask)) is not None:
                    future.set_exception(error)
            case Launch():
                wanted = self._wanted.get(effect.ask) if effect.ask is not None else None
                self._tasks.spawn(self._launch(effect, wanted() if wanted is not None else None))
            case Destroy(instance_id):
                self._tasks.spawn(self._destroy(instance_id))
            case Prime(address):
                if self._prime is not None:
                    self._tasks.spawn(self._prime(address))

    async def _destroy(self, instance_id: InstanceId) -> None:
        instance = self._backend.instance(instance_id)
        try:
            await self._backend.destroy(instance_id)
        finally:
            self.slots.gone(instance_id)
            self._step(Destroyed(instance_id, instance))

    def _settle(self, ask: AskId) -> asyncio.Future[Grant] | None:
        self._wanted.pop(ask, None)
        return self._futures.pop(ask, None)

    async def _launch(self, launch: Launch, wanted: PendingCreate | None) -> None:
        start = launch.start
        try:
            instance = await self._backend.launch(launch.template, wanted=wanted)
        except Unavailable as error:
            self._step(LaunchRefused(start, str(error), error.retry_after, error.refuse, error.only_kind))
        except BackendError as error:
            self._step(LaunchFailed(start, start_failed(error)))
        except Exception as error:
            _log.exception("a start failed in an unexpected way")
            failed = StartFailed(f"the backend failed: {error}", error_type="START_FAILED")
            self._step(LaunchFailed(start, failed))
        else:
            self._step(Launched(start, instance.id))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _arm(self) -> None:
        """Set the timer to the earliest due time."""
        at = self._core.look_at()
        if at == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = None
        if at is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, at - self._now()), self._look_again)

    def _look_again(self) -> None:
        self._timer = self._timer_at = None
        self._step(Looked())
