"""The nodes that can take one more pod of a kind, best first, kept up to date node by node."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from enum import Enum

from .needs import Needs

Rank = tuple[bool, float, str]  # discouraged, then by the strategy, then by name; the least is best


class Below(Enum):
    """What a limit counts on a node."""

    STARTS = "starts, of which the controller may begin one more"
    BOUND = "our pods there, as the scheduler counts them before it puts a waiting one there"


@dataclass(frozen=True, slots=True)
class Limit:
    below: Below
    number: int


class Candidates:
    """Nodes with room for `needs`, within `limit` (None: whatever is there)."""

    def __init__(self, needs: Needs, *, limit: Limit | None = None) -> None:
        self.needs = needs
        self.limit = limit
        self._ranks: dict[str, Rank] = {}
        self._heap: list[Rank] = []  # with outdated ranks, which `best` skips

    def put(self, node: str, rank: Rank) -> None:
        if self._ranks.get(node) == rank:
            return
        self._ranks[node] = rank
        heapq.heappush(self._heap, rank)
        if len(self._heap) > 4 * len(self._ranks) + 64:
            self._heap = list(self._ranks.values())
            heapq.heapify(self._heap)

    def drop(self, node: str) -> None:
        self._ranks.pop(node, None)

    def best(self) -> str | None:
        while self._heap:
            rank = self._heap[0]
            if self._ranks.get(rank[2]) == rank:
                return rank[2]
            heapq.heappop(self._heap)
        return None
