"""Nodes that are silent: since when, and when each counts as lost."""

from __future__ import annotations

import math
from collections.abc import Callable

_CONFIRMED_WITHIN = 1.0  # seconds in which the API server is asked for a node as a rule


class Silence:
    def __init__(self, *, clock: Callable[[], float], shown_at: Callable[[], float]) -> None:
        """`shown_at`: by when the watch of the nodes has shown what it missed; -inf: there is none, nor any doubt."""
        self._clock = clock
        self._shown_at = shown_at
        self._confirmed: set[str] = set()
        self.since: dict[str, float] = {}

    def begin(self, node: str) -> None:
        self.since.setdefault(node, self._clock())

    def end(self, node: str) -> None:
        self.since.pop(node, None)
        self._confirmed.discard(node)

    def again(self, node: str) -> None:
        """Let a silence begin now: the API server says that the node reported, which its watch has yet to show."""
        if node in self.since:
            self.since[node] = self._clock()

    def doubt(self, node: str) -> None:
        """Have the silence confirmed once more: there is news of the node."""
        self._confirmed.discard(node)

    def confirm(self, node: str) -> None:
        """Record that the API server, too, says that a node is silent."""
        if node in self.since:
            self._confirmed.add(node)

    def unconfirmed(self, *, grace: float) -> list[str]:
        """Return the nodes that count as lost once their silence is confirmed."""
        now = self._clock()
        return [node for node in self.since if self._in_doubt(node) and now >= self._due(node, grace)]

    def next_at(self, *, grace: float) -> float | None:
        """Return when to confirm a silence next, unless there is news; None: no silence has to be confirmed."""
        return min((self._due(node, grace) for node in self.since if self._in_doubt(node)), default=None)

    def lost_at(self, node: str, *, grace: float) -> float | None:
        """Return when a node counts as lost, or when that may be known; None: it reports."""
        if node not in self.since:
            return None
        due = self._due(node, grace)
        return max(due, self._clock() + _CONFIRMED_WITHIN) if self._in_doubt(node) else due

    def _due(self, node: str, grace: float) -> float:
        return max(self.since[node] + grace, self._shown_at())

    def _in_doubt(self, node: str) -> bool:
        return node not in self._confirmed and self._shown_at() > -math.inf
