"""What pods request of each node, as the scheduler counts it, and what a node has for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .doc import Doc
from .quantities import quantity

_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Amounts:
    """Cores, bytes of memory and number of pods."""

    cpu: float = 0.0
    memory: float = 0.0
    pods: float = 0.0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(self.cpu + other.cpu, self.memory + other.memory, self.pods + other.pods)


def by_node(pods: Iterable[Doc]) -> dict[str, Amounts]:
    """Return what the pods that have a node and have not ended request, by node."""
    found: dict[str, Amounts] = {}
    for pod in pods:
        node = pod.text("spec", "nodeName")
        if node and pod.text("status", "phase") not in _ENDED:
            found[node] = found.get(node, Amounts()) + _of_pod(pod)
    return found


def added(parts: Iterable[dict[str, Amounts]]) -> dict[str, Amounts]:
    """Return the sums by node."""
    found: dict[str, Amounts] = {}
    for part in parts:
        for node, amounts in part.items():
            found[node] = found.get(node, Amounts()) + amounts
    return found


def allocatable(node: Doc) -> Amounts:
    """Return what the kubelet offers to pods."""
    offered = node.pairs("status", "allocatable")
    return Amounts(*(quantity(offered.get(name, "")) or 0.0 for name in ("cpu", "memory", "pods")))


def fitting(node: Doc, used: Amounts, *, cpu: float, memory: float) -> int:
    """Return how many more pods of this size fit on the node."""
    has = allocatable(node)
    room = [(has.pods - used.pods, 1.0), (has.cpu - used.cpu, cpu), (has.memory - used.memory, memory)]
    # A sum of many tenths is a little off, and a pod that fits exactly must count.
    return max(0, int(min((free / size + 1e-6 for free, size in room if size > 0), default=0.0)))


def _of_pod(pod: Doc) -> Amounts:
    """Return its requests: of all containers together or of one that runs before them, and its runtime's overhead."""
    first = pod.docs("spec", "initContainers")
    stay = [one for one in first if one.text("restartPolicy") == "Always"]
    cpu, memory = (
        max(
            sum(_request(one, name) for one in [*pod.docs("spec", "containers"), *stay]),
            max((_request(one, name) for one in first), default=0.0),
        )
        + (quantity(pod.text("spec", "overhead", name)) or 0.0)
        for name in ("cpu", "memory")
    )
    return Amounts(cpu, memory, 1.0)


def _request(container: Doc, name: str) -> float:
    return quantity(container.text("resources", "requests", name)) or 0.0
