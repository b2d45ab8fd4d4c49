"""Collects the facts about a pod for the plan."""

from __future__ import annotations

from sandlot_kube.objects import Pod

from ..plan.pod_life import PodFacts
from ..world.nodes import Node
from ..world.world import CATCH_UP, World


def of_pod(world: World, pod: Pod, *, node_grace: float) -> PodFacts:
    name = pod.metadata.name
    return PodFacts(
        pod,
        first_seen=world.pod_seen[name],
        ready_since=world.ready_since.get(name),
        uncertain_since=world.uncertain_since.get(name),
        node_lost_at=world.node_lost_at(pod.spec.node_name, grace=node_grace),
        shown_at=max(world.complete_since(Pod), world.complete_since(Node)) + CATCH_UP,
    )
