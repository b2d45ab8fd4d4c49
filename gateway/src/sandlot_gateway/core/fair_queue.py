"""A fair queue: groups take turns by weight, and within each the groups of the next level do. Plain data, no I/O."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import lcm
from typing import NamedTuple, Protocol

Path = Sequence[str]  # the names of the groups that a waiter is in, the outermost first
Turn = tuple[int, int]  # number, and the waiter's serial to order equal ones by
# limit, number of groups -> what each group is sure of, even beyond the limit
Share = Callable[[int, int], int]

MOST_WEIGHT = 1000
# Between two turns of a group with weight 1. Whole numbers, since sums of fractions would drift apart: it is a multiple
# of the usual weights, and of any other one within a millionth.
_UNIT = lcm(*range(1, 26), 1000)


class Scheduling(NamedTuple):
    """By what a group takes its turns beside others: `weight` from 1 to MOST_WEIGHT; a higher `priority` comes first."""

    weight: int = 1
    priority: int = 0  # of runs only: see `tenant_queue`


_ALIKE = Scheduling()
# the names of a group and of those around it -> how it is scheduled now
Schedule = Callable[[Path], Scheduling]


def equal(path: Path) -> Scheduling:
    """Give all groups the same weight and priority."""
    return _ALIKE


class Place(NamedTuple):
    """A waiter's place within its innermost group: those at the front come first, else the older one."""

    behind: bool  # False: at the front
    serial: int


class Level(Protocol):
    """The waiters of one group, in the order in which they use its turns. `path`: within the group."""

    def add(self, path: Path, place: Place) -> object: ...

    def index(self, path: Path, place: Place) -> int:
        """Return how many waiters are before this one."""
        ...

    def ahead(self, path: Path, place: Place) -> int:
        """Return how many of its innermost group are before this one."""
        ...

    def leave(self, path: Path, place: Place) -> None: ...

    def serve(self, path: Path, place: Place) -> None: ...

    def in_turn(self) -> list[Place]:
        """Return the places of all waiters, the next one first."""
        ...

    def size(self, path: Path) -> int: ...

    def full(self, path: Path, limit: int) -> int | None: ...

    def reschedule(self) -> bool:
        """Let the scheduling of now also hold for those that wait; return whether any differs from before."""
        ...


@dataclass(slots=True)
class Fifo:
    """The innermost level."""

    places: list[Place] = field(default_factory=list[Place])

    def add(self, path: Path, place: Place) -> None:
        insort(self.places, place)

    def index(self, path: Path, place: Place) -> int:
        return bisect_left(self.places, place)

    ahead = index

    def leave(self, path: Path, place: Place) -> None:
        del self.places[self.index(path, place)]

    serve = leave

    def in_turn(self) -> list[Place]:
        return self.places

    def size(self, path: Path) -> int:
        return len(self.places)

    def full(self, path: Path, limit: int) -> int | None:
        return limit if len(self.places) >= limit else None

    def reschedule(self) -> bool:
        return False


@dataclass(slots=True)
class _Group:
    """A group and its turns. The i-th turn belongs to the i-th waiter of the group."""

    queue: Level
    step: int  # between two of its turns
    turns: list[Turn] = field(default_factory=list[Turn])
    # The last number that was given: with a number that was served out of turn, each newcomer would overtake older ones.
    last: int = 0


class FairQueue:
    """Start-time fair queueing: each group's turns are numbered, and the lowest number of all groups is next.

    The numbers of a group with weight 3 are a third as far apart as those of one with weight 1, so it has three turns
    for each of the other's. A group with a thousand waiters delays another's first one of the same weight by one turn,
    not by a thousand. Which of its waiters uses a turn is up to the group: it is a queue of the same kind for the next
    level, first in, first out at the last one. `share`: what each group is sure of. `below`: returns the queue of the
    group that a path names. `within`: the groups around this queue.
    """

    def __init__(
        self, share: Share, schedule: Schedule = equal, *, below: Callable[[Path], Level], within: Path = ()
    ) -> None:
        self._share = share
        self._schedule = schedule
        self._below = below
        self._within = within
        self._groups: dict[str, _Group] = {}
        self._turns: list[Turn] = []  # of all groups
        self._served = 0  # the highest number that was served: who begins to wait comes after it

    def __len__(self) -> int:
        return len(self._turns)

    def add(self, path: Path, place: Place) -> Turn:
        """Give the waiter's group one more turn, and return it: after its others, or at the front for one at the front."""
        if (group := self._groups.get(path[0])) is None:
            group = self._groups[path[0]] = self._new(path[0])
        number = self._served
        if place.behind:
            number = group.last = max(self._served, group.last) + group.step
        turn = number, place.serial
        insort(group.turns, turn)
        insort(self._turns, turn)
        group.queue.add(path[1:], place)
        return turn

    def level(self, name: str) -> Level:
        """Return the queue of a group that waits."""
        return self._groups[name].queue

    def take(self, name: str) -> list[Place]:
        """Remove a group with all its turns, and return its waiters."""
        group = self._groups.pop(name)
        turns = set(group.turns)
        self._turns = [turn for turn in self._turns if turn not in turns]
        return group.queue.in_turn()

    def _new(self, name: str) -> _Group:
        return _Group(self._below((*self._within, name)), self._step(name))

    def _step(self, name: str) -> int:
        weight = self._schedule((*self._within, name)).weight
        return _UNIT // min(max(weight, 1), MOST_WEIGHT)  # a lease that was edited by hand may say 0

    def reschedule(self) -> bool:
        """Let the scheduling of now also hold for those that wait; return whether any differs from before.

        A group's turns keep their order: those that are not due come nearer to the last one served, or farther away.
        """
        changed = reweighed = False
        for name, group in self._groups.items():
            changed |= group.queue.reschedule()
            if (step := self._step(name)) != group.step:
                reweighed = True
                group.turns = sorted(
                    (self._scaled(turn[0], step, group.step), turn[1]) for turn in group.turns
                )
                group.last, group.step = self._scaled(group.last, step, group.step), step
        if reweighed:
            self._turns = sorted(turn for group in self._groups.values() for turn in group.turns)
        return changed or reweighed

    def _scaled(self, number: int, step: int, before: int) -> int:
        after = number - self._served
        return number if after <= 0 else self._served + after * step // before

    def due(self, turn: Turn) -> bool:
        """Return whether others had their turns although this one was before theirs."""
        return turn[0] <= self._served

    def turn(self, path: Path, place: Place) -> Turn:
        """Return the turn of this waiter: who has the lowest one is next."""
        group = self._groups[path[0]]
        return group.turns[group.queue.index(path[1:], place)]

    def index(self, path: Path, place: Place) -> int:
        """Return how many waiters are before this one."""
        return bisect_left(self._turns, self.turn(path, place))

    def ahead(self, path: Path, place: Place) -> int:
        """Return how many of its innermost group are before this one."""
        return self._groups[path[0]].queue.ahead(path[1:], place)

    def in_turn(self) -> list[Place]:
        """Return the places of all waiters, the next one first."""
        return [place for _, place in sorted(self.taken())]

    def taken(self) -> list[tuple[Turn, Place]]:
        """Return the turns of all waiters, each with the place of its waiter, in no order."""
        groups = self._groups.values()
        return [pair for group in groups for pair in zip(group.turns, group.queue.in_turn(), strict=True)]

    def leave(self, path: Path, place: Place) -> None:
        """Remove a waiter that was not served, with its group's last turn: what remains has the earlier ones.

        A turn that is due goes with the waiter: those who wait for long in vain would save early turns for newcomers.
        """
        turn = self.turn(path, place)
        self._leave(path, place, turn if self.due(turn) else None)

    def _leave(self, path: Path, place: Place, due: Turn | None) -> None:
        group = self._groups[path[0]]
        group.queue.leave(path[1:], place)
        if due is not None:
            self._drop(path[0], due)
        else:
            self._drop(path[0], group.turns[-1])
            group.last = group.turns[-1][0] if group.turns else 0

    def serve(self, path: Path, place: Place, turn: Turn | None = None) -> None:
        """Remove a waiter that was served, in turn or not, with its turn: older ones would starve without theirs.

        Out of turn, its number counts less those of its group that are still before it: else each newcomer would wait
        for all of these. `turn`: the waiter's, if it is not that of its place in the group.
        """
        group, turn = self._groups[path[0]], turn or self.turn(path, place)
        before = bisect_left(group.turns, turn)
        self._served = max(self._served, turn[0] - (before + 1) * group.step if before else turn[0])
        group.queue.serve(path[1:], place)
        self._drop(path[0], turn)

    def _drop(self, name: str, turn: Turn) -> None:
        turns = self._groups[name].turns
        for of in (turns, self._turns):
            del of[bisect_left(of, turn)]
        if not turns:
            del self._groups[name]

    def size(self, path: Path) -> int:
        """Return how many wait in the group that the path names."""
        if not path:
            return len(self)
        group = self._groups.get(path[0])
        return group.queue.size(path[1:]) if group is not None else 0

    def full(self, path: Path, limit: int) -> int | None:
        """Return None if one more may wait in the innermost group of this path, else how many that group may have.

        When `limit` wait, each group may still have its share of the limit, which its own groups share in the same way.
        """
        if len(self) < limit:
            return None
        group = self._groups.get(path[0])
        share = self._share(limit, len(self._groups) + (group is None))
        if group is None:
            return None if share else 0
        return group.queue.full(path[1:], share)
