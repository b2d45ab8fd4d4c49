"""A fair queue: groups take turns, and within each the groups of the next level do. Plain data, no I/O."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Path = Sequence[str]  # the names of the groups that a waiter is in, the outermost first
Turn = tuple[int, int]  # number, and the waiter's serial to order equal ones by
# limit, number of groups -> what each group is sure of, even beyond the limit
Share = Callable[[int, int], int]


class Place(NamedTuple):
    """A waiter's place within its innermost group: those at the front come first, else the older one."""

    behind: bool  # False: at the front
    serial: int


@dataclass(slots=True)
class _Fifo:
    """The innermost level."""

    places: list[Place] = field(default_factory=list[Place])

    def add(self, path: Path, place: Place) -> None:
        insort(self.places, place)

    def index(self, path: Path, place: Place) -> int:
        return bisect_left(self.places, place)

    def leave(self, path: Path, place: Place) -> None:
        del self.places[self.index(path, place)]

    serve = leave

    def in_turn(self) -> list[Place]:
        return self.places

    def size(self, path: Path) -> int:
        return len(self.places)

    def full(self, path: Path, limit: int) -> int | None:
        return limit if len(self.places) >= limit else None


@dataclass(slots=True)
class _Group:
    """A group and its turns. The i-th turn belongs to the i-th waiter of the group."""

    queue: FairQueue | _Fifo
    turns: list[Turn] = field(default_factory=list[Turn])
    # The last number that was given: with a number that was served out of turn, each newcomer would overtake older ones.
    last: int = 0


class FairQueue:
    """Start-time fair queueing: each group's turns are numbered, and the lowest number of all groups is next.

    A group with a thousand waiters delays another's first one by one turn, not by a thousand. Which of its waiters uses
    a turn is up to the group: it is a queue of the same kind for the next level, first in, first out at the last one.
    `shares`: one for each level.
    """

    def __init__(self, shares: Sequence[Share]) -> None:
        self._share, *self._below = shares
        self._groups: dict[str, _Group] = {}
        self._turns: list[Turn] = []  # of all groups
        self._served = 0  # the highest number that was served: who begins to wait comes after it

    def __len__(self) -> int:
        return len(self._turns)

    def add(self, path: Path, place: Place) -> None:
        """Give the waiter's group one more turn: after its others, or at the front for a waiter at the front."""
        if (group := self._groups.get(path[0])) is None:
            group = self._groups[path[0]] = _Group(FairQueue(self._below) if self._below else _Fifo())
        number = self._served
        if place.behind:
            number = group.last = max(self._served, group.last) + 1
        insort(group.turns, (number, place.serial))
        insort(self._turns, (number, place.serial))
        group.queue.add(path[1:], place)

    def turn(self, path: Path, place: Place) -> Turn:
        """Return the turn of this waiter: who has the lowest one is next."""
        group = self._groups[path[0]]
        return group.turns[group.queue.index(path[1:], place)]

    def index(self, path: Path, place: Place) -> int:
        """Return how many waiters are before this one."""
        return bisect_left(self._turns, self.turn(path, place))

    def in_turn(self) -> list[Place]:
        """Return the places of all waiters, the next one first."""
        groups = self._groups.values()
        all_turns = [
            pair for group in groups for pair in zip(group.turns, group.queue.in_turn(), strict=True)
        ]
        all_turns.sort()
        return [place for _, place in all_turns]

    def leave(self, path: Path, place: Place) -> None:
        """Remove a waiter that was not served, with its group's last turn: what remains has the earlier ones.

        A turn that is due goes with the waiter: those who wait for long in vain would save early turns for newcomers.
        """
        group, turn = self._groups[path[0]], self.turn(path, place)
        group.queue.leave(path[1:], place)
        if turn[0] <= self._served:
            self._drop(path[0], turn)
        else:
            self._drop(path[0], group.turns[-1])
            group.last = group.turns[-1][0] if group.turns else 0

    def serve(self, path: Path, place: Place) -> None:
        """Remove a waiter that was served, in turn or not, with its turn: older ones would starve without theirs.

        Out of turn, its number counts less those of its group that are still before it: else each newcomer would wait
        for all of these.
        """
        group, turn = self._groups[path[0]], self.turn(path, place)
        before = bisect_left(group.turns, turn)
        self._served = max(self._served, turn[0] - before - 1 if before else turn[0])
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
