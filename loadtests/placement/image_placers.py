"""Where a sandbox of an image runs: in a slot that the gateway's ready queue chooses, or on a node that a model of
kube-scheduler chooses for a new pod.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import count, cycle
from typing import Protocol

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template
from sandlot_controller.plan.placement.needs import Needs
from sandlot_controller.plan.placement.nodes import NodeView
from sandlot_gateway.backends.kubernetes.node_agents import Prepared
from sandlot_gateway.backends.kubernetes.prepared_images import PreparedImages
from sandlot_gateway.core.instances import Instance, Laid, by_size
from sandlot_gateway.core.ready import ReadyQueue

from loadtests.placement.node_images import IMAGE_BYTES, Nodes
from loadtests.placement.scheduler_model import SchedulerModel

# Of the gateway: a whole round over all nodes takes the one, and each node at least the other.
_ROUND, _LOOK = 10.0, 0.05
_TENANT = "trainer"
_NEEDS = Needs((("cpu", 1000), ("memory", 4 << 30), ("pods", 1)))


class Placer(Protocol):
    def begin(self, image: str, *, now: float) -> tuple[str, str]:
        """Choose for a sandbox; return its node, and the name of what uses the image there."""
        ...

    def ready(self, place: str, node: str, image: str) -> None:
        """Handle that the node has the image, which it had or has pulled."""
        ...

    def end(self, place: str) -> None: ...


class SlotPlacer:
    """Slots on all nodes, as one gateway knows them: what a node has, it learns by its own claims and by its rounds."""

    def __init__(self, nodes: Nodes, *, slots_per_node: int) -> None:
        self._nodes = nodes
        self._queue = ReadyQueue(rank=lambda name: zlib.crc32(name.encode()), kind=by_size)
        self._known = PreparedImages(remembered=10.0)
        template = Template(image="")
        self._kind = by_size(template)
        self._taken: dict[str, Instance] = {}
        self._numbers = count()
        for node in nodes.images:
            self._look(node)
            for _ in range(slots_per_node):
                slot = InstanceId(f"slot-{next(self._numbers)}")
                self._queue.put(Instance(slot, template, "", "", node=node))
        self._rounds: Iterator[str] = cycle(nodes.images)
        self._pause = max(_LOOK, _ROUND / len(nodes.images))
        self._next_look = 0.0

    def begin(self, image: str, *, now: float) -> tuple[str, str]:
        while self._next_look <= now:
            self._look(next(self._rounds))
            self._next_look += self._pause
        slot = self._queue.take(self._kind, image=image, tenant=_TENANT, nodes=self._known.nodes_with(image))
        assert slot is not None, "more sandboxes than slots"
        assert slot.node is not None
        self._taken[slot.id] = slot
        if slot.laid is not None and slot.laid.id != image:
            self._nodes.unuse(slot.node, slot.laid.id, slot.id)
        slot.laid = Laid(image, image)
        return slot.node, slot.id

    def ready(self, place: str, node: str, image: str) -> None:
        self._known.allow(node, image, _TENANT, Prepared(image, ""), now=0.0)

    def end(self, place: str) -> None:
        """Make the slot warm again; it keeps the image, and the use of it."""
        self._queue.put(self._taken.pop(place))

    def _look(self, node: str) -> None:
        self._known.listed(node, _listed(self._nodes.images[node]))


class PodPlacer:
    """A new pod for each sandbox. The model knows at once which node has which image."""

    def __init__(self, nodes: Nodes, *, slots_per_node: int, most_allocated: bool) -> None:
        self._nodes = nodes
        self._model = SchedulerModel(most_allocated=most_allocated)
        self._used: dict[str, tuple[str, str]] = {}  # pod -> node, image
        self._numbers = count()
        room = {name: amount * slots_per_node for name, amount in _NEEDS.requests}
        for node in nodes.images:
            self._model.put_node(NodeView(node, room))

    def begin(self, image: str, *, now: float) -> tuple[str, str]:
        pod = f"pod-{next(self._numbers)}"
        holders = self._nodes.holders.get(image, ())
        node = self._model.choose(_NEEDS, cap=0, holders=holders, image_bytes=IMAGE_BYTES)
        assert isinstance(node, str), "more sandboxes than room"
        self._model.put(pod, _NEEDS, node=node, starting=False)
        self._used[pod] = node, image
        return node, pod

    def ready(self, place: str, node: str, image: str) -> None:
        """Nothing to learn."""

    def end(self, place: str) -> None:
        node, image = self._used.pop(place)
        self._model.drop(place)
        self._nodes.unuse(node, image, place)


PLACERS = {
    "Sandlot, slots": SlotPlacer,
    "kube-scheduler, default": partial(PodPlacer, most_allocated=False),
    "kube-scheduler, MostAllocated": partial(PodPlacer, most_allocated=True),
}


def _listed(images: Collection[str]) -> Iterable[Prepared]:
    return [Prepared(image, "", names=[image]) for image in images]
