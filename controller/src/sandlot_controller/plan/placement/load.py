"""What our pods use of a node, and how many of them start there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .needs import Needs
from .nodes import NodeView


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod on a node or meant for it; `is_bound`: the scheduler counts it there."""

    needs: Needs
    node: str
    starting: bool
    is_bound: bool


@dataclass(slots=True)
class Load:
    used: dict[str, int] = field(default_factory=dict)
    starting: int = 0
    bound: int = 0
    on_the_way: int = 0  # chosen for the node, and not bound yet

    def add(self, pod: PlacedPod) -> None:
        self.starting += pod.starting
        self.bound += pod.is_bound
        self.on_the_way += not pod.is_bound
        for name, amount in pod.needs.requests:
            self.used[name] = self.used.get(name, 0) + amount

    def remove(self, pod: PlacedPod) -> None:
        self.starting -= pod.starting
        self.bound -= pod.is_bound
        self.on_the_way -= not pod.is_bound
        for name, amount in pod.needs.requests:
            self.used[name] -= amount

    def is_empty(self) -> bool:
        return not any(self.used.values())


def fits(needs: Needs, node: NodeView, load: Load, others: Mapping[str, int]) -> bool:
    """Return whether the node takes one more pod; `others`: what other workloads use at least."""
    used, room = load.used, node.allocatable
    for name, amount in needs.requests:
        if used.get(name, 0) + others.get(name, 0) + amount > room.get(name, 0):
            return False
    return node.admits(needs)


def fullness(node: NodeView, load: Load, others: Mapping[str, int]) -> float:
    """Return the used share of the node's scarcest resource."""
    shares = (
        (amount + others.get(name, 0)) / room
        for name, amount in load.used.items()
        if (room := node.allocatable.get(name, 0)) > 0
    )
    return max(shares, default=0.0)
