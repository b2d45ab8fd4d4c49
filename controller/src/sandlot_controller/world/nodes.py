"""Node fields for placement, beyond those in `sandlot_kube`, and whether a node is silent."""

from __future__ import annotations

import msgspec
from sandlot_kube.objects import Condition, Metadata


class Taint(msgspec.Struct, gc=False):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(msgspec.Struct, gc=False):
    unschedulable: bool = False
    taints: list[Taint] = []


class NodeStatus(msgspec.Struct, gc=False):
    conditions: list[Condition] = []
    allocatable: dict[str, str] = {}


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
