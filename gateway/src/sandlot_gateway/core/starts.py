"""Starts under way: by number, by instance once their launch has returned, and what was heard of an instance before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from sandlot_contract.ids import InstanceId

from .supply_events import AskId, Lost, Offered, StartId, Taken
from .waiting import Waiter

Told = Offered | Lost | Taken


@dataclass(slots=True)
class Ask:
    """A create that waits for an instance."""

    id: AskId
    asked_at: float
    started_at: float | None = None  # the first start that was meant for it
    start: StartId | None = None  # the one that is under way
    attempts: int = 0


@dataclass(slots=True)
class Start:
    """`instance_id` is None until its launch has returned, and so is `due`."""

    id: StartId
    key: str
    waiter: Waiter[Ask] | None  # whom it is meant for
    asked_at: float
    instance_id: InstanceId | None = None
    began: float = 0.0
    due: float = 0.0
    unwanted: bool = False  # that one has gone


class Starts:
    """An instance's first word may be here before its launch has returned, or be of an instance that no launch returns."""

    def __init__(self) -> None:
        self._starts: dict[StartId, Start] = {}
        self._start_of: dict[InstanceId, StartId] = {}  # by instance, of those whose launch has returned
        # What came of instances that no launch had returned, and when; the oldest first.
        self._early: dict[InstanceId, tuple[float, Told]] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Start]:
        return iter(list(self._starts.values()))

    def __getitem__(self, start_id: StartId) -> Start:
        return self._starts[start_id]

    def begin(self, key: str, waiter: Waiter[Ask] | None, *, now: float) -> Start:
        start = Start(StartId(next(self._numbers)), key, waiter, now)
        self._starts[start.id] = start
        if waiter is not None:
            waiter.value.start = start.id
            waiter.value.started_at = waiter.value.started_at or now
        return start

    def launched(self, start_id: StartId, instance_id: InstanceId, *, now: float, due: float) -> Told | None:
        """Its launch has returned; gives what was heard of the instance before."""
        start = self._starts[start_id]
        start.instance_id, start.began, start.due = instance_id, now, due
        self._start_of[instance_id] = start_id
        early = self._early.pop(instance_id, None)
        if early is None:
            self._forget_early()
            return None
        return early[1]

    def arrived(self, instance_id: InstanceId, told: Told, *, now: float) -> Start | None:
        """The start that this ends. Keeps it for a launch that may yet return the instance."""
        start_id = self._start_of.get(instance_id)
        if start_id is not None:
            return self.over(start_id)
        if len(self._start_of) < len(self._starts):
            self._early.setdefault(instance_id, (now, told))
        return None

    def over(self, start_id: StartId) -> Start:
        start = self._starts.pop(start_id)
        if start.instance_id is not None:
            del self._start_of[start.instance_id]
        if start.waiter is not None:
            start.waiter.value.start = None
        self._forget_early()
        return start

    def next_due(self) -> float | None:
        """When the first that has begun is to be looked at."""
        return min(
            (start.due for start in self._starts.values() if start.instance_id is not None), default=None
        )

    def count_by_key(self) -> Counter[str]:
        return Counter(start.key for start in self._starts.values())

    def _forget_early(self) -> None:
        """Forget what came before the gateway asked for the oldest launch that is under way: it is of none of them."""
        if not self._early:
            return
        since = min((one.asked_at for one in self._starts.values() if one.instance_id is None), default=None)
        while self._early:
            instance_id, (at, _) = next(iter(self._early.items()))
            if since is not None and at >= since:
                break
            del self._early[instance_id]
