"""Keeps the ledger of nodes and pods as the watches report them, and chooses the nodes of new pods."""

from __future__ import annotations

import re

import msgspec
from sandlot_contract import names
from sandlot_kube.objects import Pod, PodSpec
from sandlot_kube.template import Template, decode

from ..metrics import Metrics
from ..plan import pod as pods
from ..plan.placement.ledger import Ledger
from ..plan.placement.needs import PODS, Needs, allocatable, of_spec
from ..plan.placement.nodes import NodeView, Taint
from ..settings import Settings
from ..world.nodes import Node
from ..world.starts import unschedulable
from ..world.world import World
from .drains import is_drained

_EXPECTED = 30.0  # seconds for a created pod to appear in the watch
_SHAPES = 1000  # remembered
# kube-scheduler's "Insufficient cpu" of one node, and its words for a node's number of pods
_INSUFFICIENT = re.compile(r"Insufficient ([^\s,]*[^\s,.])|(Too many pods)")


class NodeChoices:
    def __init__(self, world: World, *, settings: Settings, metrics: Metrics) -> None:
        self.ledger = Ledger(strategy=settings.placement)
        self._world = world
        self._settings = settings
        self._metrics = metrics
        # What the API server's admission makes of a pod, say by its RuntimeClass.
        self._admitted: dict[Template, Needs] = {}  # by shape
        # Pods that no watch has shown -> until when they count, and their shape.
        self._expected: dict[str, tuple[float, Template]] = {}
        self._outdated: set[str] = set()  # pods that wait as an older version let them
        world.pod_listeners.append(self._on_pod)
        world.node_listeners.append(self._on_node)

    def needs(self, template: Template) -> Needs:
        """Return what a pod of this template needs of its node."""
        shape = shape_of(template)
        found = self._admitted.get(shape)
        return found or of_spec(pods.spec_of(shape, settings=self._settings))

    def is_admitted(self, template: Template) -> bool:
        """Return whether the API server has shown what such a pod needs."""
        return shape_of(template) in self._admitted

    def is_tried(self, template: Template) -> bool:
        """Return whether such a pod is expected, which will show what it needs."""
        shape = shape_of(template)
        return any(expected == shape for _, expected in self._expected.values())

    def expect(self, pod: str, template: Template, *, node: str | None, cap: int) -> None:
        """Count a pod that is about to be created, until a watch shows it. `cap`: of starts, as it was chosen by."""
        if pod in self._world.pods:
            return
        self._expected[pod] = self._world.clock() + _EXPECTED, shape_of(template)
        if node is None:
            self.ledger.put_waiting(pod, self.needs(template), cap=cap)
        else:
            self.ledger.put(pod, self.needs(template), node=node, starting=True, is_bound=False)

    def forget(self, pod: str) -> None:
        """Stop to count an expected pod that was not created."""
        if self._expected.pop(pod, None) is not None:
            self.ledger.drop(pod)

    def refresh(self, now: float) -> float | None:
        """Forget what is too old; return when to call this again."""
        least = self._world.complete_since(Pod) + _EXPECTED  # while their watch fails, they may be there
        for pod in [name for name, (until, _) in self._expected.items() if max(until, least) <= now]:
            self.forget(pod)
        due = [max(until, least) for until, _ in self._expected.values()]
        if (at := self.ledger.expire(now)) is not None:
            due.append(at)
        return min(due, default=None)

    def replaceable(self) -> list[Pod]:
        """Return pods that the scheduler found no node for: some node could take them by now, or they are outdated."""
        found = (self._world.pods.get(name) for name in {*self.ledger.replaceable(), *self._outdated})
        return [pod for pod in found if pod is not None and unschedulable(pod)]

    def _on_pod(self, pod: Pod, gone: bool) -> None:
        name = pod.metadata.name
        expected = self._expected.pop(name, None)
        self._outdated.discard(name)
        if gone or pod.status.terminal:
            self.ledger.drop(name)
            return
        needs = self.ledger.needs(name) if expected is None else None
        if needs is None:
            needs = self._learn(pod, of_spec(pod.spec), newest=expected is not None)
        # Of 10,000 pods, these parts take 20 MB.
        pod.spec = PodSpec(node_name=pod.spec.node_name)
        if is_rejected(pod):
            self._reject(pod)
            return
        node = pod.spec.node_name or pods.chosen_node(pod.metadata)
        if node is None:
            if pods.has_old_constraint(pod.metadata):
                self._outdated.add(name)
            is_cold = names.LABEL_FOR in pod.metadata.labels
            cap = self._settings.cold_starts_per_node if is_cold else self._settings.starts_per_node
            self.ledger.put_waiting(name, needs, cap=cap)
            return
        # The scheduler counts a pod from the time that it makes room for it.
        is_bound = (pod.spec.node_name or pod.status.nominated_node_name) is not None
        self.ledger.put(name, needs, node=node, starting=name in self._world.starts, is_bound=is_bound)

    def _reject(self, pod: Pod) -> None:
        if pod.metadata.name not in self.ledger:
            return
        self._metrics.rejected.inc()
        condition = pod.condition("PodScheduled")
        text = condition.message or "" if condition is not None else ""
        lacking = {found[1] or PODS for found in _INSUFFICIENT.finditer(text)}
        self.ledger.reject(pod.metadata.name, lacking, now=self._world.clock())

    def _learn(self, pod: Pod, needs: Needs, *, newest: bool) -> Needs:
        """Remember what a pod of this shape needs, and return one object for equal needs.

        `newest`: it was created with the current settings.
        """
        try:
            shape = shape_of(decode(pod.metadata.annotations.get(names.ANNOTATION_TEMPLATE, "")))
        except msgspec.DecodeError:
            return needs
        known = self._admitted.get(shape)
        if known is not None and known == needs:
            return known
        if known is None or newest:
            self._admitted[shape] = needs
        if len(self._admitted) > _SHAPES:
            del self._admitted[next(iter(self._admitted))]
        return needs

    def _on_node(self, name: str) -> None:
        node = self._world.nodes.get(name)
        if node is None:
            self.ledger.drop_node(name)
        else:
            self.ledger.put_node(_view(node))


def is_rejected(pod: Pod) -> bool:
    """Return whether the scheduler could not place the pod on the node chosen for it, and is not making room there."""
    return (
        unschedulable(pod)
        and pods.chosen_node(pod.metadata) is not None
        and pod.status.nominated_node_name is None
    )


def shape_of(template: Template) -> Template:
    """Return the template without what no node cares about."""
    return msgspec.structs.replace(template, image="", pids=0)


def _view(node: Node) -> NodeView:
    return NodeView(
        node.metadata.name,
        allocatable(node.status.allocatable),
        node.metadata.labels,
        tuple(Taint(taint.key, taint.value, taint.effect) for taint in node.spec.taints),
        usable=node.ready() == "True" and not is_drained(node),
    )
