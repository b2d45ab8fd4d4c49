"""What pods request of each node, as the scheduler counts it, and what a node has for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .doc import Doc
from .quantities import quantity

# By resource, as Kubernetes names it: cores, bytes, devices; `pods` is their number.
Amounts = Mapping[str, float]

_ENDED = ("Succeeded", "Failed")


def add(found: dict[str, Amounts], pods: Iterable[Doc]) -> None:
    """Add, by node, what these pods request, if they have a node and have not ended."""
    for pod in pods:
        node = pod.text("spec", "nodeName")
        if node and pod.text("status", "phase") not in _ENDED:
            found[node] = total([found.get(node, {}), _of_pod(pod)])


def total(parts: Iterable[Amounts]) -> dict[str, float]:
    """Return the sums by resource."""
    found: dict[str, float] = {}
    for part in parts:
        for name, amount in part.items():
            found[name] = found.get(name, 0.0) + amount
    return found


def allocatable(node: Doc) -> Amounts:
    """Return what the kubelet offers to pods."""
    return _amounts(node, "status", "allocatable")


def fitting(node: Doc, used: Amounts, size: Amounts) -> int:
    """Return how many more pods of this size fit on the node."""
    has = allocatable(node)
    needs = {**size, "pods": 1.0}
    room = [(has.get(name, 0.0) - used.get(name, 0.0), each) for name, each in needs.items() if each > 0]
    # A sum of many tenths is a little off, and a pod that fits exactly must count.
    return max(0, int(min(free / each + 1e-6 for free, each in room)))


def _of_pod(pod: Doc) -> Amounts:
    """Return its requests: the most that its containers need at one moment, and its runtime's overhead."""
    stay: list[Amounts] = []  # init containers that run on beside all that begin after them
    moments: list[Amounts] = []
    for one in pod.docs("spec", "initContainers"):
        requests = _requests(one)
        moments.append(total([*stay, requests]))
        if one.text("restartPolicy") == "Always":
            stay.append(requests)
    moments.append(total([*stay, *(_requests(one) for one in pod.docs("spec", "containers"))]))
    names = {name for moment in moments for name in moment}
    most = {name: max(moment.get(name, 0.0) for moment in moments) for name in names}
    # What the pod requests as a whole replaces the sum of its containers.
    most |= _requests(pod.doc("spec"))
    return total([most, _amounts(pod, "spec", "overhead"), {"pods": 1.0}])


def _requests(of: Doc) -> Amounts:
    return _amounts(of, "resources", "requests")


def _amounts(of: Doc, *path: str) -> Amounts:
    return {name: quantity(text) or 0.0 for name, text in of.pairs(*path).items()}
