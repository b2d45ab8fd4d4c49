"""A heap of names by due time, where only the earliest time of a name counts."""

from __future__ import annotations

import heapq


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}

    def set(self, name: str, at: float) -> None:
        if at < self._due.get(name, float("inf")):
            self._due[name] = at
            heapq.heappush(self._heap, (at, name))

    def drop(self, name: str) -> None:
        self._due.pop(name, None)

    def next_at(self) -> float | None:
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> list[str]:
        names: list[str] = []
        while (at := self.next_at()) is not None and at <= now:
            _, name = heapq.heappop(self._heap)
            del self._due[name]
            names.append(name)
        return names
