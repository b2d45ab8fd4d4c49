"""Which node has which image prepared, and for whom, as far as this gateway knows. Plain data, without a clock."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable

from .node_agents import Prepared

_NAMES = 10_000  # of images that this gateway remembers by id
_RIGHTS = 10_000


class PreparedImages:
    """`remembered`: seconds for which an answer to a tenant holds, so that the next claim need not ask again."""

    def __init__(self, *, remembered: float) -> None:
        self._remembered = remembered
        self._nodes: dict[str, set[str]] = {}  # image name -> nodes
        self._names: dict[str, dict[str, str]] = {}  # node -> image name -> image id
        self._name_of: OrderedDict[str, str] = OrderedDict()  # image id -> name
        # (node, image name, tenant) -> (until when, image id), the oldest first
        self._rights: OrderedDict[tuple[str, str, str], tuple[float, str]] = OrderedDict()

    def nodes_with(self, image: str) -> Collection[str]:
        return self._nodes.get(image, ())

    def id_on(self, node: str, image: str) -> str | None:
        """Return the id of an image that a node has by this name, as far as known; this says nothing of any right."""
        return self._names.get(node, {}).get(image)

    def name_of(self, image_id: str) -> str | None:
        """Return a name of the image, if this gateway has seen one."""
        return self._name_of.get(image_id)

    def allow(self, node: str, image: str, tenant: str, prepared: Prepared, *, now: float) -> None:
        """Record a node agent's answer to a tenant: it has the image, and this tenant may have it."""
        self._add(node, image, prepared.id)
        self._rights.pop((node, image, tenant), None)
        self._rights[node, image, tenant] = (now + self._remembered, prepared.id)
        while self._rights and (len(self._rights) > _RIGHTS or next(iter(self._rights.values()))[0] <= now):
            self._rights.popitem(last=False)

    def find(self, node: str, image: str, tenant: str, *, now: float) -> str | None:
        """Return the id of an image that this tenant was allowed on this node a moment ago."""
        until, image_id = self._rights.get((node, image, tenant), (0.0, ""))
        return image_id if now < until else None

    def gone(self, node: str, image: str) -> None:
        """Note that a node has the image no more."""
        self._remove(node, image)
        for right in [one for one in self._rights if one[:2] == (node, image)]:
            del self._rights[right]

    def listed(self, node: str, images: Iterable[Prepared]) -> None:
        """Record everything that a node has."""
        found = {name: image.id for image in images for name in image.names}
        for name in self._names.get(node, {}).keys() - found.keys():
            self._remove(node, name)
        for name, image_id in found.items():
            self._add(node, name, image_id)

    def keep_nodes(self, nodes: Collection[str]) -> None:
        """Forget what other nodes had."""
        for node in self._names.keys() - set(nodes):
            self.listed(node, ())

    def _add(self, node: str, image: str, image_id: str) -> None:
        self._nodes.setdefault(image, set()).add(node)
        self._names.setdefault(node, {})[image] = image_id
        self._name_of.pop(image_id, None)
        self._name_of[image_id] = image
        if len(self._name_of) > _NAMES:
            self._name_of.popitem(last=False)

    def _remove(self, node: str, image: str) -> None:
        nodes, names = self._nodes.get(image, set()), self._names.get(node, {})
        nodes.discard(node)
        names.pop(image, None)
        if not nodes:
            self._nodes.pop(image, None)
        if not names:
            self._names.pop(node, None)
