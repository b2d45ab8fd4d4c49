"""Matches creates with instances: a warm instance for a create, a waiting create for a ready instance."""

from __future__ import annotations

from collections.abc import Iterator

from sandlot_contract.ids import InstanceId

from .demand import Seen
from .instances import Instance
from .slots import Phase, Slots
from .starts import Ask, Start
from .waiting import Waiter, WaitList

_OVERDUE = 3.0  # times the recent mean start time


class Matching:
    """A tenant's own pool serves only its creates. Instances of no pool are kept for the next create for a while."""

    def __init__(self, *, slots: Slots, line: WaitList[Ask], seen: Seen, spare_seconds: float) -> None:
        self._slots = slots
        self._line = line
        self._seen = seen
        self._spare_seconds = spare_seconds
        # instance of no pool -> when to destroy it, the oldest first
        self._spares: dict[InstanceId, float] = {}
        self.mean_start = 1.0  # seconds, a moving average of recent starts

    def take(self, key: str, *, pool: str | None, tenant: str) -> Instance | None:
        """Take a warm instance: of the named pool if it has one, else of any pool open to the tenant."""

        def allowed(name: str) -> bool:
            return self._owner(name) in (None, tenant)

        instance = self._slots.take(key, pool=pool, allowed=allowed) if pool is not None else None
        instance = instance or self._slots.take(key, allowed=allowed)
        if instance is not None:
            self.forget(instance.id)
        return instance

    def shed(self, pool: str) -> Instance | None:
        """Remove a warm instance from this pool, preferring one of an outdated template."""
        spec = self._seen.pool(pool)
        instance = self._slots.shed(pool, keep=spec.template.key if spec is not None else None)
        if instance is not None:
            self.forget(instance.id)
        return instance

    def waiter_for(self, instance: Instance, start: Start | None, *, now: float) -> Waiter[Ask] | None:
        """Choose the create it was started for unless that left or another is overdue; else the longest waiting."""
        if start is not None:
            # Counted from the request, as `_is_overdue` does: a slow launch call must make no create overdue.
            self.mean_start += 0.2 * (now - start.asked_at - self.mean_start)
            if start.waiter is not None and start.waiter.waiting and not self._is_overdue(start.key, now):
                return start.waiter
        owner = self._owner(instance.pool) if instance.pool is not None else None
        key = instance.template.key
        return self._line.head(key) if owner is None else self._line.first_of(key, owner)

    def keep(self, instance: Instance, *, now: float) -> None:
        """Keep an instance that no create needs now."""
        self._slots.wait(instance)
        if instance.pool is None:
            self._spares[instance.id] = now + self._spare_seconds

    def forget(self, instance_id: InstanceId) -> None:
        self._spares.pop(instance_id, None)

    def next_due(self) -> float | None:
        """Return when the oldest kept instance of no pool expires."""
        return next(iter(self._spares.values()), None)

    def overdue(self, now: float) -> Iterator[InstanceId]:
        """Yield the kept instances that have expired."""
        while (due := self.next_due()) is not None and due <= now:
            instance_id = next(iter(self._spares))
            del self._spares[instance_id]
            if self._slots.phase(instance_id) is Phase.WARM:
                yield instance_id

    def _is_overdue(self, key: str, now: float) -> bool:
        """Return whether the first waiter has waited much longer than starts take."""
        head = self._line.head(key)
        since = head.value.started_at if head is not None else None
        return since is not None and now - since > _OVERDUE * self.mean_start

    def _owner(self, pool: str) -> str | None:
        """Return the tenant that owns this pool. Unused instances of a deleted pool are open to any tenant."""
        spec = self._seen.pool(pool)
        return spec.owner if spec is not None else None
