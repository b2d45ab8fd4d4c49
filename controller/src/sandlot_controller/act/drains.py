"""Whether a node is drained of a pod: it is cordoned, or an autoscaler empties it, and the pod does not tolerate that."""

from __future__ import annotations

from collections.abc import Sequence

from sandlot_kube.objects import Pod, Toleration

from ..plan.placement.nodes import Taint, is_tolerated
from ..world.nodes import Node
from ..world.world import World

_CORDONED = Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")
# By cluster-autoscaler's taints.go and Karpenter's taints.go, new and old.
_EMPTYING = frozenset(("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"))


def is_drained(node: Node | None, tolerations: Sequence[Toleration] = ()) -> bool:
    """Return whether the node is drained of pods with these tolerations.

    One that tolerates the taint counts like any other: its successor may come to the same node, so the pool would
    replace it again and again.
    """
    if node is None:
        return False
    taints = [Taint(one.key, one.value, one.effect) for one in node.spec.taints if one.key in _EMPTYING]
    if node.spec.unschedulable:
        taints.append(_CORDONED)
    return not all(is_tolerated(taint, tolerations) for taint in taints)


def is_drained_of(pod: Pod, world: World) -> bool:
    """Return whether the pod's node is drained of it."""
    return is_drained(world.nodes.get(pod.spec.node_name or ""), pod.spec.tolerations)
