"""Pods of others beside the sandboxes, which an autoscaler may move: a ReplicaSet with a disruption budget."""

from __future__ import annotations

from sandlot_kube.client import KubeClient

CONTROLLERS = ("replicaset-controller", "disruption-controller", "pod-garbage-collector-controller")
MILLICORES = 55  # of each
_LABELS = {"app": "web"}


async def make_movable(client: KubeClient, namespace: str, *, count: int) -> None:
    """Create them; at most one may be away at a time."""
    container = {"name": "web", "image": "web", "resources": {"requests": {"cpu": f"{MILLICORES}m"}}}
    template = {"metadata": {"labels": _LABELS}, "spec": {"containers": [container]}}
    selector = {"matchLabels": _LABELS}
    pods = {
        "metadata": {"name": "web"},
        "spec": {"replicas": count, "selector": selector, "template": template},
    }
    budget = {"metadata": {"name": "web"}, "spec": {"selector": selector, "minAvailable": count - 1}}
    await client.request("POST", f"/apis/apps/v1/namespaces/{namespace}/replicasets", body=pods)
    await client.request("POST", f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", body=budget)
