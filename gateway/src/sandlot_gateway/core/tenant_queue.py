"""The queue of creates: tenants take turns by weight; of a tenant's runs, those of the highest priority, by weight."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from .fair_queue import FairQueue, Fifo, Path, Place, Schedule, Share, Turn, equal
from .kind_turns import KindTurns

MOST_PRIORITY = 100


class PriorityClasses:
    """A tenant's runs in classes of one priority each: the first waiter is always one of the highest class.

    Its turns are those of its tenant, so that priorities take nothing from other tenants. Within a class, runs take
    turns as in any `FairQueue`. `share`: what each run is sure of, whatever its class.
    """

    def __init__(
        self, share: Share, schedule: Schedule, *, class_of: Callable[[], FairQueue], within: Path
    ) -> None:
        self._share = share
        self._schedule = schedule
        self._class_of = class_of
        self._within = within
        self._classes: dict[int, FairQueue] = {}  # the highest priority first
        self._priorities: dict[str, int] = {}  # of the runs that wait

    def priority(self, run: str) -> int:
        """Return the priority by which a run that waits is scheduled, or that of one that would join now."""
        found = self._priorities.get(run)
        return self._schedule((*self._within, run)).priority if found is None else found

    def above(self, run: str) -> int:
        """Return how many waiters have a higher priority than this run."""
        own = self.priority(run)
        return sum(len(queue) for priority, queue in self._classes.items() if priority > own)

    def add(self, path: Path, place: Place) -> None:
        priority = self._priorities[path[0]] = self.priority(path[0])
        if (queue := self._classes.get(priority)) is None:
            queue = self._classes[priority] = self._class_of()
            self._classes = dict(sorted(self._classes.items(), reverse=True))
        queue.add(path, place)

    def index(self, path: Path, place: Place) -> int:
        return self.above(path[0]) + self._own(path).index(path, place)

    def ahead(self, path: Path, place: Place) -> int:
        return self._own(path).ahead(path, place)

    def leave(self, path: Path, place: Place) -> None:
        self._own(path).leave(path, place)
        self._left(path)

    def serve(self, path: Path, place: Place) -> None:
        self._own(path).serve(path, place)
        self._left(path)

    def in_turn(self) -> list[Place]:
        return [place for queue in self._classes.values() for place in queue.in_turn()]

    def size(self, path: Path) -> int:
        if not path:
            return sum(map(len, self._classes.values()))
        return self._own(path).size(path) if path[0] in self._priorities else 0

    def full(self, path: Path, limit: int) -> int | None:
        if self.size(()) < limit:
            return None
        known = path[0] in self._priorities
        share = self._share(limit, len(self._priorities) + (not known))
        if not known:
            return None if share else 0
        return share if self.size(path) >= share else None

    def reschedule(self) -> bool:
        """Move the runs whose priority has changed, each behind those that wait in its new class."""
        moved = [
            (run, now)
            for run, before in self._priorities.items()
            if (now := self._schedule((*self._within, run)).priority) != before
        ]
        for run, _ in moved:
            places = self._own((run,)).take(run)
            self._left((run,))
            for place in places:
                self.add((run,), place)
        changed = [queue.reschedule() for queue in self._classes.values()]
        return bool(moved) or any(changed)

    def _own(self, path: Path) -> FairQueue:
        return self._classes[self._priorities[path[0]]]

    def _left(self, path: Path) -> None:
        """Forget what none waits in: idle time is not saved up."""
        priority = self._priorities[path[0]]
        queue = self._classes[priority]
        if not queue.size(path):
            del self._priorities[path[0]]
        if not len(queue):
            del self._classes[priority]


class TenantQueue(FairQueue):
    """Even beyond a limit each tenant has a tenth of it, and each of its runs an even share of that tenth.

    Each waiter is of a kind, and turns of a tenant belong to kinds (`KindTurns`): `serve` is told which one the waiter
    has, `leave` its kind and how many of it are before the waiter. `turn`, `index` and `in_turn` are of a tenant's
    waiters whatever their kind.
    """

    def __init__(self, schedule: Schedule = equal) -> None:
        def runs(within: Path) -> FairQueue:
            return FairQueue(_evenly, schedule, below=lambda path: Fifo(), within=within)

        def classes(within: Path) -> PriorityClasses:
            return PriorityClasses(_evenly, schedule, class_of=lambda: runs(within), within=within)

        super().__init__(_tenth, schedule, below=classes)
        self._kinds: dict[str, KindTurns] = {}

    def add(self, path: Path, place: Place, kind: str = "") -> Turn:
        turn = super().add(path, place)
        kinds = self._kinds.setdefault(path[0], KindTurns())
        kinds.add(bisect_left(self._groups[path[0]].turns, turn), kind, turn)
        return turn

    def leave(
        self, path: Path, place: Place, kind: str = "", rank: Callable[[int], int] | None = None
    ) -> None:
        """Remove a waiter that was not served: see `FairQueue.leave`. Of its tenant, its own kind moves up."""
        kinds, turns = self._kinds[path[0]], self._groups[path[0]].turns
        due = bisect_left(turns, (self._served + 1, 0))
        if rank is None or len(kinds) == 1:
            index = bisect_left(turns, self.turn(path, place))
        else:
            # Counting those before a waiter of many runs takes long, and most that leave have no turn that is due.
            of_kind = kinds.before(kind, due)
            before = rank(of_kind) if of_kind else 0
            index = kinds.index(kind, before) if before < of_kind else due
        if index < due:
            turn = turns[index]
            kinds.use(index, turn)
            self._leave(path, place, turn)
        else:
            kinds.give_up_last(kind)
            self._leave(path, place, None)
        self._forget(path[0])

    def serve(self, path: Path, place: Place, turn: Turn | None = None) -> None:
        turn = turn or self.turn(path, place)
        self._kinds[path[0]].use(bisect_left(self._groups[path[0]].turns, turn), turn)
        super().serve(path, place, turn)
        self._forget(path[0])

    def reschedule(self) -> bool:
        changed = super().reschedule()
        for kinds in self._kinds.values() if changed else ():
            kinds.changed()
        return changed

    def of_one_kind(self, tenant: str) -> bool:
        """Return whether all waiters of a tenant are of one kind: then `turn` is also theirs of their kind."""
        return len(self._kinds[tenant]) == 1

    def of_kind(self, tenant: str, kind: str) -> Sequence[Turn]:
        """Return the turns of a tenant's waiters of this kind, in their order."""
        return self._kinds[tenant].of(kind, self._groups[tenant].turns)

    def next_of_kind(self, tenant: str, kind: str) -> Turn:
        """Return the next turn of a tenant's waiters of this kind."""
        return self._kinds[tenant].next(kind, self._groups[tenant].turns)

    def _forget(self, tenant: str) -> None:
        if tenant not in self._groups:
            del self._kinds[tenant]

    def priority(self, path: Path) -> int:
        """Return the priority by which the run of a waiter is scheduled."""
        return self._classes(path).priority(path[1])

    def above(self, path: Path) -> int:
        """Return how many waiters of the tenant have a higher priority than this run."""
        return self._classes(path).above(path[1]) if self.size(path[:1]) else 0

    def _classes(self, path: Path) -> PriorityClasses:
        classes = self.level(path[0])
        assert isinstance(classes, PriorityClasses)
        return classes


def _tenth(limit: int, tenants: int) -> int:
    return min(limit, max(1, limit // 10))


def _evenly(limit: int, runs: int) -> int:
    return limit // runs
