"""Computes how many starts the waiting creates still need, and which create each start is meant for."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Protocol

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template

from .instances import PoolSpec, PoolStatus
from .starts import Ask, Starts
from .waiting import Waiter, WaitList

_Owned = tuple[str, str | None]  # (template key, tenant): a tenant's own pool serves only its creates


class Seen(Protocol):
    """The backend's state at the moment of a step."""

    def pools(self) -> Sequence[PoolStatus]: ...

    def pool(self, name: str) -> PoolSpec | None: ...

    def begun(self, instance_id: InstanceId) -> float | None:
        """Return when its start began; None while it waits for a turn or capacity; 0.0 if unknown."""
        ...


class Demand:
    """Counts starts in progress, including those of pools, against all waiting creates: no create is served twice."""

    def __init__(self, *, line: WaitList[Ask], starts: Starts, seen: Seen) -> None:
        self._line = line
        self._starts = starts
        self._seen = seen

    def on_the_way(self) -> Counter[str]:
        """Count the starts in progress per template that a waiting create may get."""
        return self._on_the_way(self._own_starts())

    def unmet(self, key: str) -> int:
        """Count the waiting creates minus the starts in progress; negative when there are more starts."""
        return self._line.waiting(key) - self.on_the_way()[key]

    def missing(self, *, max_starts: int) -> Iterator[tuple[Template, Waiter[Ask] | None]]:
        """Yield the starts to begin now, one at a time, each with the create that it is meant for."""
        own = self._own_starts()
        on_the_way = self._on_the_way(own)
        for key in self._line.in_turn():
            missing = min(self._line.waiting(key) - on_the_way[key], max_starts - len(self._starts))
            if missing <= 0:
                continue
            line = self._line.in_line(key)
            uncovered = self._uncovered(line, own)
            for _ in range(missing):
                yield line[0].template, uncovered.popleft() if uncovered else None

    def _uncovered(self, line: list[Waiter[Ask]], own: Counter[_Owned]) -> deque[Waiter[Ask]]:
        """Return the waiters without a start of their own or of their tenant's pools, the next one first."""
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

    def _own_starts(self) -> Counter[_Owned]:
        """Count the pools' starts in progress."""
        starts: Counter[_Owned] = Counter()
        for status in self._seen.pools():
            starts[status.spec.template.key, status.spec.owner] += status.starting
        return starts

    def _on_the_way(self, own: Counter[_Owned]) -> Counter[str]:
        on_the_way = self._starts.count_by_key()
        for (key, owner), starting in own.items():
            on_the_way[key] += starting if owner is None else min(starting, self._line.waiting_of(key, owner))
        return on_the_way
