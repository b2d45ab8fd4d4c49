"""Collects the facts about a pod for the plan."""

from __future__ import annotations

from sandlot_kube.objects import Pod

from ..plan.pod_life import PodFacts
from ..world.world import World


def of_pod(world: World, pod: Pod) -> PodFacts:
    name = pod.metadata.name
    return PodFacts(
        pod,
        # While their watch fails, one that is starting may have come up.
        first_seen=max(world.pod_seen[name], world.complete_since(Pod)),
        ready_since=world.ready_since.get(name),
        uncertain_since=world.uncertain_since.get(name),
        silent_since=world.node_silent_since(pod.spec.node_name),
    )
