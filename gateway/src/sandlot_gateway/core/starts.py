"""Starts in progress, by number and instance, and reports that came before their launch call returned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import count

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template

from .supply_events import AskId, Lost, Offered, StartId, Taken
from .template_line import Waiter

StartReport = Offered | Lost | Taken


@dataclass(slots=True)
class Ask:
    """A create that waits for an instance."""

    id: AskId
    asked_at: float
    started_at: float | None = None  # when its first start began
    start: StartId | None = None  # its start in progress
    attempts: int = 0
    evicted_at: float | None = None  # when another tenant's instance was last ended for it
    avoid: Collection[str] = ()  # nodes that could not prepare its image
    lays_image: bool = False  # see `Asked`
    passed: int = 0  # freed instances that went to later creates, because of images


@dataclass(slots=True)
class Start:
    """One call of `launch`. `instance_id` is None, and `due` unset, until the call returns."""

    id: StartId
    key: str
    template: Template
    waiter: Waiter[Ask] | None  # the create that it is meant for
    asked_at: float
    instance_id: InstanceId | None = None
    began: float = 0.0
    due: float = 0.0
    unwanted: bool = False  # that create has left


class Starts:
    """An instance may report before its launch call returns, or without any launch call of this gateway."""

    def __init__(self) -> None:
        self._starts: dict[StartId, Start] = {}
        # instance id -> start, once the launch call has returned
        self._start_of: dict[InstanceId, StartId] = {}
        # instance id -> (time, report) for instances that no launch call has returned, the oldest first
        self._early: dict[InstanceId, tuple[float, StartReport]] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Start]:
        return iter(list(self._starts.values()))

    def __getitem__(self, start_id: StartId) -> Start:
        return self._starts[start_id]

    def ages(self, now: float) -> list[float]:
        """Return the seconds since each start began."""
        return [now - start.asked_at for start in self._starts.values()]

    def begin(self, key: str, template: Template, waiter: Waiter[Ask] | None, *, now: float) -> Start:
        start = Start(StartId(next(self._numbers)), key, template, waiter, now)
        self._starts[start.id] = start
        if waiter is not None:
            waiter.value.start = start.id
            waiter.value.started_at = waiter.value.started_at or now
        return start

    def launched(
        self, start_id: StartId, instance_id: InstanceId, *, now: float, due: float
    ) -> StartReport | None:
        """Note the launch call's result; return an earlier report of the instance, if any."""
        start = self._starts[start_id]
        start.instance_id, start.began, start.due = instance_id, now, due
        self._start_of[instance_id] = start_id
        early = self._early.pop(instance_id, None)
        if early is None:
            self._forget_early()
            return None
        return early[1]

    def arrived(self, instance_id: InstanceId, told: StartReport, *, now: float) -> Start | None:
        """Return the start that this report ends; else keep the report for a launch call that may yet return."""
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
        """Return when the first begun start is due for a check."""
        return min(
            (start.due for start in self._starts.values() if start.instance_id is not None), default=None
        )

    def count_by_key(self) -> Counter[str]:
        return Counter(start.key for start in self._starts.values())

    def launching(self, key: str) -> int:
        """Count the launch calls for this template that have not returned."""
        return sum(start.key == key and start.instance_id is None for start in self._starts.values())

    def _forget_early(self) -> None:
        """Forget reports older than the oldest launch call in progress: they belong to none of them."""
        if not self._early:
            return
        since = min((one.asked_at for one in self._starts.values() if one.instance_id is None), default=None)
        while self._early:
            instance_id, (at, _) = next(iter(self._early.items()))
            if since is not None and at >= since:
                break
            del self._early[instance_id]
