"""Pods without a chosen node, which the scheduler may put on any, and the share of a node's starts that it has with them."""

from __future__ import annotations

from collections.abc import Iterator

from .needs import Needs

Kind = tuple[
    Needs, int
]  # their needs, and the number of our pods on a node below which the scheduler puts one there


def scheduler_share(cap: int) -> int:
    """Return the number of our pods on a node below which the scheduler may put a waiting one there.

    One less than may start: the controller may have one on the way there, of which the scheduler knows nothing.
    """
    return max(1, cap - 1)


class Waiting:
    def __init__(self) -> None:
        self._pods: dict[Kind, set[str]] = {}

    def add(self, pod: str, kind: Kind) -> bool:
        """Add a pod; return whether it is the first one with its needs."""
        first = not self.has(kind[0])
        self._pods.setdefault(kind, set()).add(pod)
        return first

    def remove(self, pod: str, kind: Kind) -> bool:
        """Remove a pod; return whether it was the last one with its needs."""
        pods = self._pods[kind]
        pods.discard(pod)
        if not pods:
            del self._pods[kind]
        return not self.has(kind[0])

    def has(self, needs: Needs) -> bool:
        return any(one == needs for one, _ in self._pods)

    def count(self, needs: Needs) -> int:
        return sum(len(pods) for (one, _), pods in self._pods.items() if one == needs)

    def all_needs(self) -> set[Needs]:
        return {needs for needs, _ in self._pods}

    def kinds(self) -> Iterator[tuple[Kind, list[str]]]:
        """Yield each kind with its pods by name."""
        for kind, pods in self._pods.items():
            yield kind, sorted(pods)
