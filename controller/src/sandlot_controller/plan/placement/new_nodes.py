"""How many new nodes some pods need, if a new one takes as many as the largest that is there."""

from __future__ import annotations

import math
from collections.abc import Mapping

from .needs import Needs
from .nodes import NodeView

_MOST = 50  # nodes: the scheduler looks at all waiting pods again when one arrives
_KINDS = 64  # of pods


class NewNodes:
    """Remembers what a node takes; `changed` forgets it."""

    def __init__(self, nodes: Mapping[str, NodeView]) -> None:
        self._nodes = nodes
        self._per_node: dict[Needs, int] = {}

    def changed(self) -> None:
        """Note that a node has come, gone or changed."""
        self._per_node.clear()

    def wanted(self, needs: Needs, pods: int) -> int:
        """Return the number of nodes for so many pods; one while no node is there that could take any."""
        if len(self._per_node) >= _KINDS:
            self._per_node.clear()
        per_node = self._per_node.get(needs)
        if per_node is None:
            per_node = self._per_node[needs] = max(
                (takes(node, needs) for node in self._nodes.values()), default=0
            )
        return min(math.ceil(pods / per_node), _MOST) if per_node else 1


def takes(node: NodeView, needs: Needs) -> int:
    """Return how many such pods the node takes while it is empty."""
    if not node.admits(needs):
        return 0
    return min(node.allocatable.get(name, 0) // amount for name, amount in needs.requests)
