"""Counts the pods that are starting, by node and not yet scheduled."""

from __future__ import annotations

from sandlot_kube.objects import Pod

from .usable_nodes import UsableNodes
from .world import World


def by_node(world: World, *, usable: UsableNodes) -> dict[str, int]:
    """Return the number of starting pods on each usable node."""
    starting = dict.fromkeys(usable.names(), 0)
    for name in world.starts:
        node = world.pods[name].spec.node_name
        if node in starting:
            starting[node] += 1
    return starting


def unplaced(world: World) -> int:
    """Return the number of starting pods that the scheduler has not looked at, without those that fit nowhere."""
    pods = (world.pods[name] for name in world.starts)
    return sum(pod.spec.node_name is None and not unschedulable(pod) for pod in pods)


def unschedulable(pod: Pod) -> bool:
    scheduled = pod.condition("PodScheduled")
    return pod.spec.node_name is None and scheduled is not None and scheduled.reason == "Unschedulable"
