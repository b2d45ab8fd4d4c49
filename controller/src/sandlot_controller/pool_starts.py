"""Pods that are starting, of pools and of callers: how many on each node, how many nowhere yet."""

from __future__ import annotations

from collections.abc import Iterator

from sandlot_kube.objects import Pod

from sandlot_controller.objects import is_usable
from sandlot_controller.settings import Settings
from sandlot_controller.world import World


def by_node(world: World, *, settings: Settings) -> dict[str, int]:
    """Every node that sandboxes may run on."""
    selector, tolerations = settings.node_selector, settings.tolerations
    starting = {
        name: 0
        for name, node in world.nodes.items()
        if is_usable(node, selector=selector, tolerations=tolerations)
    }
    for pod in _starts(world):
        if pod.spec.node_name in starting:
            starting[pod.spec.node_name] += 1
    return starting


def unplaced(world: World) -> int:
    """Those that the scheduler has not looked at yet; one that fits nowhere starts nowhere."""
    return sum(pod.spec.node_name is None and not unschedulable(pod) for pod in _starts(world))


def unschedulable(pod: Pod) -> bool:
    scheduled = pod.condition("PodScheduled")
    return pod.spec.node_name is None and scheduled is not None and scheduled.reason == "Unschedulable"


def _starts(world: World) -> Iterator[Pod]:
    for name, pod in world.pods.items():
        if name not in world.ready_since and pod.status.phase not in ("Failed", "Succeeded"):
            yield pod
