"""Decides which group of creates may collect instances: one at a time, so that no two hold a part and wait for the rest.

A group is created as a whole or not at all. While it collects it holds what it has got; all other groups hold nothing.
Other gateways have collecting groups of their own, of which this one knows nothing: a group that gets no further gives
back all that it holds, and pauses for a random time before it collects again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NewType

from sandlot_contract.template import Template

from .fair_queue import Place, Schedule, equal
from .tenant_queue import TenantQueue

GroupId = NewType("GroupId", str)

PATIENCE = 30.0  # seconds: most starts take less, so a group that needs only time is seldom interrupted
_LONGEST = 4  # times the patience: the longest pause


@dataclass(frozen=True, slots=True)
class Collect:
    """The group takes places for all its members."""

    group: GroupId


@dataclass(frozen=True, slots=True)
class GiveBack:
    """The group gives up the places of all its members, and the instances that they have got."""

    group: GroupId


Turn = Collect | GiveBack


@dataclass(slots=True)
class _Waiting:
    path: tuple[str, str]  # tenant and run
    place: Place
    templates: Collection[Template]  # of its members
    not_before: float = 0.0
    tries: int = 0


class GroupTurns:
    """The groups of one gateway that have no instances yet; turns are those of `TenantQueue`.

    `alone`: no other gateway takes instances. `chance` returns a random number from 0 to 1. `outranked` returns whether
    single creates of a higher priority than a tenant's run wait for an instance of the kind of one of these templates.
    """

    def __init__(
        self,
        *,
        alone: bool,
        chance: Callable[[], float],
        patience: float = PATIENCE,
        schedule: Schedule = equal,
        outranked: Callable[[str, str, Collection[Template]], bool] = lambda tenant, run, templates: False,
    ) -> None:
        self._alone = alone
        self._chance = chance
        self._patience = patience
        self._outranked = outranked
        self._queue = TenantQueue(schedule)
        self._groups: dict[GroupId, _Waiting] = {}
        self._serial = 0
        self._collecting: GroupId | None = None
        self._since = 0.0  # when the collecting group last got an instance
        self._looked_at = 0.0

    @property
    def collecting(self) -> GroupId | None:
        return self._collecting

    def position(self, group: GroupId) -> int:
        """Return its place, 1 for the one that collects or is next."""
        waiting = self._groups.get(group)
        if waiting is None or group == self._collecting:
            return 1
        return self._queue.index(waiting.path, waiting.place) + 1 + (self._collecting is not None)

    def join(
        self, group: GroupId, *, tenant: str, run: str, now: float, templates: Collection[Template] = ()
    ) -> Sequence[Turn]:
        """Take a place in the queue of groups, all members at once. `templates`: what they hold or ask for."""
        self._groups[group] = waiting = _Waiting((tenant, run), self._place(), templates)
        self._queue.add(waiting.path, waiting.place)
        return self.step(now)

    def got(self, group: GroupId, *, now: float) -> None:
        """Note that the collecting group has got one more instance."""
        if group == self._collecting:
            self._since = now

    def leave(self, group: GroupId, *, now: float) -> Sequence[Turn]:
        """Forget a group that has all its instances, or has given up."""
        waiting = self._groups.pop(group, None)
        if waiting is None:
            return ()
        if group == self._collecting:
            self._collecting = None
        else:
            self._queue.leave(waiting.path, waiting.place)
        return self.step(now)

    def step(self, now: float) -> Sequence[Turn]:
        """Return what is to be done by this time."""
        turns: list[Turn] = []
        self._looked_at = now
        due = self._gives_back_at()
        if due is not None and now >= due and self._collecting is not None:
            turns.append(GiveBack(self._collecting))
            self._behind(self._groups[self._collecting], now)
            self._collecting = None
        self._queue.reschedule()
        if self._collecting is None and (group := self._next(now)) is not None:
            waiting = self._groups[group]
            self._queue.serve(waiting.path, waiting.place)
            self._collecting, self._since = group, now
            turns.append(Collect(group))
        return turns

    def next_due(self) -> float | None:
        """Return when the next `step` is due if nothing else happens."""
        if self._collecting is not None:
            due = self._gives_back_at()
            # Nothing tells that creates of a higher priority have begun to wait.
            return due if due is not None else max(self._since, self._looked_at) + self._patience
        return min((waiting.not_before for waiting in self._groups.values()), default=None)

    def _gives_back_at(self) -> float | None:
        if self._collecting is None:
            return None
        waiting = self._groups[self._collecting]
        outranked = self._outranked(*waiting.path, waiting.templates)
        if self._alone and len(self._groups) == 1 and not outranked:
            return None  # nobody else needs what it holds more
        return self._since + self._patience

    def _behind(self, waiting: _Waiting, now: float) -> None:
        waiting.tries += 1
        if not self._alone:
            longest = self._patience * min(waiting.tries, _LONGEST)
            waiting.not_before = now + self._chance() * longest
        waiting.place = self._place()
        self._queue.add(waiting.path, waiting.place)

    def _next(self, now: float) -> GroupId | None:
        by_place = {
            waiting.place: group for group, waiting in self._groups.items() if waiting.not_before <= now
        }
        return next((by_place[place] for place in self._queue.in_turn() if place in by_place), None)

    def _place(self) -> Place:
        self._serial += 1
        return Place(behind=True, serial=self._serial)


def full(waiting: Sequence[tuple[str, str]], tenant: str, run: str, *, limit: int) -> bool:
    """Return whether one more group of this run may not wait beside those of these tenants and runs."""
    if len(waiting) < limit:
        return False
    queue = TenantQueue()
    for serial, path in enumerate(waiting):
        queue.add(path, Place(behind=True, serial=serial))
    return queue.full((tenant, run), limit) is not None
