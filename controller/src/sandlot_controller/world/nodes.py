"""Node fields for placement, beyond those in `sandlot_kube`, and whether a node may run sandboxes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sandlot_kube.objects import Condition, Metadata

from ..settings import Toleration


class Taint(msgspec.Struct, gc=False):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(msgspec.Struct, gc=False):
    unschedulable: bool = False
    taints: list[Taint] = []


class NodeStatus(msgspec.Struct, gc=False):
    conditions: list[Condition] = []


class Node(msgspec.Struct, gc=False):
    metadata: Metadata
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)

    def ready(self) -> str | None:
        """Return the status of the condition Ready, or None before the first report."""
        return next((one.status for one in self.status.conditions if one.type == "Ready"), None)


def is_silent(node: Node | None) -> bool:
    """Return whether the node is unknown or no longer reports to the control plane."""
    return node is None or node.ready() == "Unknown"


def is_usable(node: Node, *, selector: dict[str, str], tolerations: Sequence[Toleration]) -> bool:
    """Return whether labels and taints let the scheduler place a sandbox on this node."""
    labels = node.metadata.labels
    return (
        node.ready() == "True"
        and not node.spec.unschedulable
        and all(labels.get(name) == value for name, value in selector.items())
        and all(
            taint.effect == "PreferNoSchedule" or any(_tolerates(one, taint) for one in tolerations)
            for taint in node.spec.taints
        )
    )


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and (toleration.value or "") == taint.value
