"""Whether the scheduler has looked for a node for a pod in vain."""

from __future__ import annotations

from sandlot_kube.objects import Pod


def unschedulable(pod: Pod) -> bool:
    scheduled = pod.condition("PodScheduled")
    return pod.spec.node_name is None and scheduled is not None and scheduled.reason == "Unschedulable"
