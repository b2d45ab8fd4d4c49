"""What the scheduler's rejections tell about a node: how much of it others use, for as long as that is believed."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

SHORTEST = 60.0  # seconds that a first rejection is believed; twice as long after each further one
LONGEST = 3600.0


@dataclass(slots=True)
class _Rejected:
    believed: float  # seconds
    until: float
    others: dict[str, int] = field(default_factory=dict)
    closed: bool = False  # for a reason that names no resource


class Rejections:
    """Rejections by node. All `now` are from one monotonic clock."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Rejected] = {}
        self._due: list[tuple[float, str]] = []
        self._before: dict[
            str, tuple[float, float]
        ] = {}  # node -> how long it was believed, and when that ended

    def add(self, node: str, others: Mapping[str, int], *, now: float) -> None:
        """Record that others use at least this much of the node; nothing: that it takes no pod at all."""
        known = self._nodes.get(node)
        if known is None:
            believed, ended = self._before.pop(node, (0.0, now))
            believed = min(max(2 * believed, SHORTEST), LONGEST) if now - ended < LONGEST else SHORTEST
            known = self._nodes[node] = _Rejected(believed, now + believed)
            heapq.heappush(self._due, (known.until, node))
        known.closed = known.closed or not others
        for name, amount in others.items():
            known.others[name] = max(known.others.get(name, 0), amount)

    def others(self, node: str) -> Mapping[str, int]:
        known = self._nodes.get(node)
        return known.others if known is not None else {}

    def is_closed(self, node: str) -> bool:
        known = self._nodes.get(node)
        return known is not None and known.closed

    def expire(self, now: float) -> list[str]:
        """Stop to believe what is old, and return those nodes."""
        nodes: list[str] = []
        while self._due and self._due[0][0] <= now:
            until, node = heapq.heappop(self._due)
            known = self._nodes.get(node)
            if known is not None and known.until == until:
                self._before[node] = known.believed, until
                del self._nodes[node]
                nodes.append(node)
        return nodes

    def next_at(self) -> float | None:
        return self._due[0][0] if self._due else None

    def forget(self, node: str) -> None:
        """Forget a node that is gone."""
        self._nodes.pop(node, None)
        self._before.pop(node, None)
