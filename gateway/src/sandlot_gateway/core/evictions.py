"""Chooses idle instances to end because they are bound to other tenants than those of the creates that wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from sandlot_contract.ids import InstanceId

from .demand import Demand
from .instances import Instance
from .matching import Matching
from .slots import Slots
from .starts import Ask
from .template_line import Waiter
from .waiting import WaitList

_AGAIN = 1.0  # seconds between two evictions for the same create, at least


class Evictions:
    """Each waiting create without a start on the way has one instance ended, which makes room for a new one.

    A further one is ended for the create whose turn it is once it is overdue: others may have taken the room.
    """

    def __init__(self, *, slots: Slots, line: WaitList[Ask], demand: Demand, matching: Matching) -> None:
        self._slots = slots
        self._line = line
        self._demand = demand
        self._matching = matching
        # kind -> creates for which none has been ended, the oldest first; some have left
        self._owed: dict[str, deque[Waiter[Ask]]] = {}
        self._in_progress: dict[InstanceId, str] = {}  # instance -> kind

    def asked(self, waiter: Waiter[Ask]) -> None:
        """Note a create that begins to wait."""
        owed = self._owed.setdefault(waiter.key, deque())
        while owed and not owed[0].waiting:
            owed.popleft()
        owed.append(waiter)

    def left(self, key: str) -> None:
        """Note that a create has left the line of this template."""
        if not self._line.waiting(key):
            self._owed.pop(key, None)

    def destroyed(self, instance_id: InstanceId) -> None:
        self._in_progress.pop(instance_id, None)

    def in_progress(self, key: str) -> int:
        return sum(of == key for of in self._in_progress.values())

    def cover_one_more(self, waiter: Waiter[Ask]) -> bool:
        """Return whether slots, starts in progress and the room of ended instances suffice for this create, too."""
        covered = self._demand.unmet(waiter.key) < self.in_progress(waiter.key)
        return covered or self._demand.slots_serve(waiter)

    def due(self, now: float) -> Iterator[InstanceId]:
        """Yield the instances to end now; their slots have moved to ENDING."""
        for key in self._line.in_turn():
            if not self._slots.warm.has_bound(key):
                continue
            unmet = self._demand.unmet(key)
            owed = self._owed.get(key, ())
            while owed and unmet > 0:
                if owed[0].waiting and owed[0].value.evicted_at is None:
                    if (evicted := self.one_for(owed[0], now)) is None:
                        break
                    yield evicted
                    unmet -= 1
                owed.popleft()
            head = self._line.head(key)
            overdue = head is not None and self._is_overdue(head.value, now)
            if head is not None and overdue and (evicted := self.one_for(head, now)) is not None:
                yield evicted

    def one_for(self, waiter: Waiter[Ask], now: float) -> InstanceId | None:
        """Choose an instance to end for this create, if there is one."""
        instance = self._matching.evict(waiter.key, tenant=waiter.tenant)
        return self._begin(instance, waiter, now) if instance is not None else None

    def instead_of_use(self, instance: Instance, now: float) -> InstanceId | None:
        """Choose this ready instance although its tenant waits, if the create whose turn it is cannot use it.

        Otherwise a tenant whose creates always wait would keep its instances for ever.
        """
        head = self._line.head(self._slots.kind(instance.template))
        bound_to = self._slots.bound_to(instance.id)
        if head is None or bound_to in (None, head.tenant) or not self._is_overdue(head.value, now):
            return None
        if not self._matching.may_use(instance.pool, head.tenant):
            return None
        self._slots.discard(instance.id)
        return self._begin(instance, head, now)

    def _begin(self, instance: Instance, waiter: Waiter[Ask], now: float) -> InstanceId:
        waiter.value.evicted_at = now
        self._in_progress[instance.id] = waiter.key
        return instance.id

    def _is_overdue(self, ask: Ask, now: float) -> bool:
        since = ask.asked_at if ask.evicted_at is None else ask.evicted_at
        return now - since > max(_AGAIN, self._matching.patience)
