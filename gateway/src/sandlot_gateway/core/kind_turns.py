"""Says which turns of a tenant belong to its waiters of each kind. Plain data, no I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import compress, count, islice

from .fair_queue import Turn


class KindTurns:
    """The kinds of a tenant's turns: the i-th turn of a kind belongs to the i-th waiter of that kind.

    A turn is of the kind that its waiter joined for. So one that passed while nothing fitted its waiter stays with that
    kind: a later create of a higher priority would otherwise take it, and other tenants would wait for it.
    """

    def __init__(self) -> None:
        self._kinds: list[str] = []  # of each turn, in the order of the turns
        self._counts: Counter[str] = Counter()
        self._of: dict[str, list[Turn]] | None = None  # found again when it is needed after a change

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, index: int, kind: str, turn: Turn) -> None:
        if index < len(self._kinds):
            self._of = None
        elif self._of is not None:
            self._of.setdefault(kind, []).append(turn)
        self._kinds.insert(index, kind)
        self._counts[kind] += 1

    def give_up_last(self, kind: str) -> None:
        """Forget one of this kind, and the last of all turns: those that are behind the last of the kind move up."""
        index = len(self._kinds) - 1
        while self._kinds[index] != kind:
            index -= 1
        self._forget(index)
        self._of = None

    def use(self, index: int, turn: Turn) -> None:
        """Forget the turn at this index, which was used: all others stay as they are."""
        kind = self._forget(index)
        if self._of is not None:
            del self._of[kind][bisect_left(self._of[kind], turn)]

    def _forget(self, index: int) -> str:
        kind = self._kinds.pop(index)
        self._counts[kind] -= 1
        if not self._counts[kind]:
            del self._counts[kind]
        return kind

    def changed(self) -> None:
        """Note that the turns have other numbers now, in the same order."""
        self._of = None

    def before(self, kind: str, index: int) -> int:
        """Return how many turns of a kind are before this index."""
        return self._kinds[:index].count(kind)

    def index(self, kind: str, number: int) -> int:
        """Return the index of the turn of a kind before which it has so many."""
        return next(islice(compress(count(), map(kind.__eq__, self._kinds)), number, None))

    def next(self, kind: str, turns: Sequence[Turn]) -> Turn:
        """Return the next turn of a kind; `turns`: all of the tenant."""
        return self._of[kind][0] if self._of is not None else turns[self._kinds.index(kind)]

    def of(self, kind: str, turns: Sequence[Turn]) -> Sequence[Turn]:
        """Return the turns of a kind, the next one first; `turns`: all of the tenant."""
        if len(self._counts) == 1:
            return turns
        if self._of is None:
            self._of = {}
            for each, turn in zip(self._kinds, turns, strict=True):
                self._of.setdefault(each, []).append(turn)
        return self._of[kind]
