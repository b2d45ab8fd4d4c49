"""Computes how many starts the waiting creates still need, and which create each start is meant for."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from heapq import heappop, heappush
from typing import Protocol

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template

from .fair_queue import Turn
from .instances import Kind, PoolSpec, PoolStatus
from .starts import Ask, Starts
from .template_line import Waiter
from .waiting import WaitList

# (kind, tenant, image): what only this tenant's creates, and only those of this image, can get; None: of any
_Owned = tuple[str, str | None, str | None]


class Seen(Protocol):
    """The backend's state at the moment of a step."""

    def pools(self) -> Sequence[PoolStatus]: ...

    def pool(self, name: str) -> PoolSpec | None: ...

    def begun(self, instance_id: InstanceId) -> float | None:
        """Return when its start began; None while it waits for a turn or capacity; 0.0 if unknown."""
        ...

    def nodes_with(self, image: str) -> Collection[str]:
        """Return the nodes that have the image prepared for a claim, as far as known."""
        ...


class Demand:
    """Counts starts in progress, including those of pools, against all waiting creates: no create is served twice.

    A pool without an image of its own serves every create of its size class in time, so that none needs a start. Not
    one that has no instance, and whose last start failed.
    """

    def __init__(self, *, line: WaitList[Ask], starts: Starts, seen: Seen, kind: Kind) -> None:
        self._line = line
        self._kind = kind
        self._starts = starts
        self._seen = seen

    def on_the_way(self) -> Counter[str]:
        """Count the starts in progress per kind that a waiting create may get, and the creates of slot pools."""
        return self._on_the_way(self._own_starts(slot_pools=True))

    def unmet(self, key: str) -> int:
        """Count the waiting creates minus the starts in progress; negative when there are more starts."""
        return self._line.waiting(key) - self._on_the_way(self._own_starts())[key]

    def slots_serve(self, waiter: Waiter[Ask]) -> bool:
        """Return whether a pool without an image of its own serves this create in time."""
        return any(
            _has_slots(status)
            and status.spec.owner in (None, waiter.tenant)
            and self._kind(status.spec.template) == waiter.key
            for status in self._seen.pools()
        )

    def missing(
        self, *, max_starts: int, but: Collection[str] = (), one_of: Collection[str] = ()
    ) -> Iterator[tuple[Template, Waiter[Ask] | None]]:
        """Yield the starts to begin now, in turn of the creates that they are meant for, each with that one.

        `but`: kinds of which none may begin. `one_of`: of each of these, one launch call at a time.
        """
        own = self._own_starts(slot_pools=True)
        on_the_way = self._on_the_way(own)
        keys = deque(self._line.in_turn())
        # A kind is looked at once its first create is next: there may be a thousand, and few starts may begin.
        begun: dict[str, deque[Waiter[Ask] | None]] = {}
        turns: list[tuple[Turn, str]] = []
        while len(self._starts) < max_starts:
            while keys and (not turns or self._turn(keys[0]) < turns[0][0]):
                key = keys.popleft()
                most = self._line.waiting(key) - on_the_way[key]
                if key in one_of:
                    most = min(most, 1 - self._starts.launching(key))
                if most > 0 and key not in but:
                    begun[key] = self._uncovered(self._line.in_line(key), own, most=most)
                    heappush(turns, (self._turn(key, begun[key][0]), key))
            if not turns:
                return
            _, key = heappop(turns)
            waiter = begun[key].popleft()
            head = self._line.head(key)
            assert head is not None
            yield (waiter or head).template, waiter
            if begun[key]:
                heappush(turns, (self._turn(key, begun[key][0]), key))

    def _turn(self, key: str, waiter: Waiter[Ask] | None = None) -> Turn:
        waiter = waiter or self._line.head(key)
        assert waiter is not None
        return self._line.start_turn(waiter)

    def _uncovered(
        self, line: list[Waiter[Ask]], own: Counter[_Owned], *, most: int
    ) -> deque[Waiter[Ask] | None]:
        """Return the waiters without a start or reset of their own or for their tenant only, the next one first.

        At most so many, and None for each that lacks.
        """
        left = own.copy()
        found: deque[Waiter[Ask] | None] = deque()
        for waiter in line:
            if len(found) == most:
                break
            if waiter.value.start is not None:
                continue
            key, tenant, image = waiter.key, waiter.tenant, waiter.template.image
            own_ones = ((key, tenant, None), (key, tenant, image), (key, None, image))
            if (covered_by := next((one for one in own_ones if left[one]), None)) is not None:
                left[covered_by] -= 1
            else:
                found.append(waiter)
        found.extend([None] * (most - len(found)))
        return found

    def _own_starts(self, *, slot_pools: bool = False) -> Counter[_Owned]:
        """Count the pools' starts and resets in progress; a reset instance returns to the tenant that used it.

        `slot_pools`: count a pool without an image as if it started one for each of its creates.
        """
        starts: Counter[_Owned] = Counter()
        for status in self._seen.pools():
            template, owner = status.spec.template, status.spec.owner
            kind = self._kind(template)
            starting = status.starting - status.keeping_image
            if slot_pools and _has_slots(status):
                starting = max(starting, self._line.waiting(kind, tenant=owner))
            starts[kind, owner, None] += starting
            if status.keeping_image:
                starts[kind, owner, template.image] += status.keeping_image
            for tenant, resetting in status.resetting.items():
                starts[kind, tenant, None] += resetting
        return starts

    def _on_the_way(self, own: Counter[_Owned]) -> Counter[str]:
        on_the_way = self._starts.count_by_key()
        for (key, owner, image), starting in own.items():
            if image is not None:
                waiters = self._line.of_images(key, {image})
                waiting = sum(owner in (None, waiter.tenant) for waiter in waiters)
                on_the_way[key] += min(starting, waiting)
            else:
                on_the_way[key] += (
                    starting if owner is None else min(starting, self._line.waiting(key, tenant=owner))
                )
        return on_the_way


def _has_slots(status: PoolStatus) -> bool:
    """Return whether it is a pool without an image that has instances or can be expected to start them."""
    failing = status.empty and status.failures > 0 and status.starting == 0
    return not status.spec.template.image and status.spec.size > 0 and not failing
