"""Says which turns of a tenant belong to its waiters of each kind. Plain data, no I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

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

    def remove(self, index: int) -> None:
        """Forget the turn at this index."""
        kind = self._kinds.pop(index)
        self._counts[kind] -= 1
        if not self._counts[kind]:
            del self._counts[kind]
        self._of = None

    def serve(self, index: int, turn: Turn) -> None:
        """Forget the turn at this index, which was used: all others stay as they are."""
        of, kind = self._of, self._kinds[index]
        self.remove(index)
        if of is not None:
            del of[kind][bisect_left(of[kind], turn)]
            self._of = of

    def changed(self) -> None:
        """Note that the turns have other numbers now, in the same order."""
        self._of = None

    def of(self, kind: str, turns: Sequence[Turn]) -> Sequence[Turn]:
        """Return the turns of a kind, the next one first; `turns`: all of the tenant."""
        if len(self._counts) == 1:
            return turns
        if self._of is None:
            self._of = {}
            for each, turn in zip(self._kinds, turns, strict=True):
                self._of.setdefault(each, []).append(turn)
        return self._of[kind]
