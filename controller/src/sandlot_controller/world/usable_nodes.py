"""Names of the nodes that sandboxes may run on, recomputed only after a node has changed."""

from __future__ import annotations

from ..settings import Settings
from .nodes import is_usable
from .world import World


class UsableNodes:
    def __init__(self, world: World, *, settings: Settings) -> None:
        self._world = world
        self._settings = settings
        self._version = -1
        self._names: list[str] = []

    def names(self) -> list[str]:
        if self._version != self._world.nodes_version:
            self._version = self._world.nodes_version
            selector, tolerations = self._settings.node_selector, self._settings.tolerations
            self._names = [
                name
                for name, node in self._world.nodes.items()
                if is_usable(node, selector=selector, tolerations=tolerations)
            ]
        return self._names
