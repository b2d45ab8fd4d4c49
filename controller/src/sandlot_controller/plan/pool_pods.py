"""The living pods of one pool, grouped for planning; adding and removing a pod takes constant time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodView:
    """A living pod of a pool, as the planner sees it."""

    name: str
    # Hash of what it was created from, empty on a node that is being emptied: an outdated pod is removed as soon as
    # possible.
    build: str
    since: float = 0.0  # when it was first seen
    node: str | None = None
    ready_since: float | None = None  # None: starting
    claimed: bool = False
    askable: bool = False  # its sidecar has an address
    unschedulable: bool = False


class PoolPods:
    """Pods in three groups: claimed, ready and starting."""

    def __init__(self, views: Iterable[PodView] = ()) -> None:
        self.claimed: dict[str, PodView] = {}
        self.ready: dict[str, PodView] = {}
        self.starting: dict[str, PodView] = {}
        self._builds: Counter[tuple[str, bool]] = Counter()  # unclaimed pods by build and readiness
        for view in views:
            self.put(view)

    def __contains__(self, name: object) -> bool:
        return name in self.ready or name in self.starting or name in self.claimed

    def __len__(self) -> int:
        return len(self.ready) + len(self.starting) + len(self.claimed)

    def __iter__(self) -> Iterator[PodView]:
        yield from self.unclaimed()
        yield from self.claimed.values()

    def unclaimed(self) -> Iterator[PodView]:
        yield from self.ready.values()
        yield from self.starting.values()

    def put(self, view: PodView) -> None:
        """Add or replace a pod."""
        self.drop(view.name)
        self._group(view)[view.name] = view
        if not view.claimed:
            self._builds[view.build, view.ready_since is not None] += 1

    def drop(self, name: str) -> None:
        for group in (self.ready, self.starting, self.claimed):
            if (view := group.pop(name, None)) is not None:
                if not view.claimed:
                    self._builds[view.build, view.ready_since is not None] -= 1
                return

    def count(self, build: str, *, ready: bool) -> int:
        """Return the number of unclaimed pods of a build that are ready, or that are starting."""
        return self._builds[build, ready]

    def outdated(self, build: str) -> list[PodView]:
        """Return the unclaimed pods of other builds."""
        current = self._builds[build, True] + self._builds[build, False]
        if current == len(self.ready) + len(self.starting):
            return []
        return [view for view in self.unclaimed() if view.build != build]

    def _group(self, view: PodView) -> dict[str, PodView]:
        if view.claimed:
            return self.claimed
        return self.starting if view.ready_since is None else self.ready
