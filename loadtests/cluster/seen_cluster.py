"""Nodes and pods as an autoscaler sees them: what is used of each node, which pods wait for one, and which may move."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sandlot_controller.plan.placement.needs import allocatable, of_spec
from sandlot_kube import paths
from sandlot_kube.client import KubeClient
from sandlot_kube.objects import PodSpec

_SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"


@dataclass(frozen=True, slots=True)
class SeenPod:
    """`bound_to`: the only node that it may run on. `may_move`: it may be evicted."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    requests: Mapping[str, int]
    node: str | None
    unschedulable: bool
    bound_to: str | None
    may_move: bool
    spread: tuple[Mapping[str, str], int] | None  # at most so many pods with these labels on a node


@dataclass(slots=True)
class SeenNode:
    name: str
    room: Mapping[str, int]
    takes_pods: bool = True
    pods: list[SeenPod] = field(default_factory=list[SeenPod])

    def used(self) -> float:
        """Return the used share of the scarcer of CPU and memory."""
        return max(self._sum(name) / self.room[name] for name in ("cpu", "memory"))

    def fits(self, pod: SeenPod) -> bool:
        """Return whether the scheduler may place the pod here."""
        if pod.bound_to not in (None, self.name):
            return False
        if pod.spread is not None:
            labels, most = pod.spread
            if sum(labels.items() <= other.labels.items() for other in self.pods) >= most:
                return False
        return all(
            self._sum(name) + amount <= self.room.get(name, 0) for name, amount in pod.requests.items()
        )

    def put(self, pod: SeenPod) -> None:
        self.pods.append(pod)

    def copy(self) -> SeenNode:
        return SeenNode(self.name, self.room, self.takes_pods, list(self.pods))

    def _sum(self, name: str) -> int:
        return sum(pod.requests.get(name, 0) for pod in self.pods)


@dataclass(frozen=True, slots=True)
class SeenCluster:
    nodes: dict[str, SeenNode]
    pods: list[SeenPod]

    def unschedulable(self) -> Iterator[SeenPod]:
        """Yield the pods that wait for a node, and would take a new one."""
        return (pod for pod in self.pods if pod.unschedulable and pod.bound_to is None)

    def on(self, node: str) -> list[SeenPod]:
        return [pod for pod in self.pods if pod.node == node]

    @staticmethod
    def empty(room: Mapping[str, str]) -> SeenNode:
        """Return a node that is not there yet."""
        return SeenNode("", allocatable(room))


async def look(client: KubeClient) -> SeenCluster:
    """List all nodes and pods."""
    items = json.loads(await client.request("GET", "/api/v1/pods", timeout=60.0))["items"]
    pods = [_pod(item) for item in items if item["status"].get("phase") not in ("Succeeded", "Failed")]
    nodes: dict[str, SeenNode] = {}
    for item in json.loads(await client.request("GET", paths.nodes()))["items"]:
        name, spec, status = item["metadata"]["name"], item["spec"], item["status"]
        ready = any(
            one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", ())
        )
        takes_pods = ready and not spec.get("unschedulable") and not spec.get("taints")
        nodes[name] = SeenNode(name, allocatable(status["allocatable"]), takes_pods)
    for pod in pods:
        if pod.node in nodes:
            nodes[pod.node].put(pod)
    return SeenCluster(nodes, pods)


def _pod(item: dict[str, Any]) -> SeenPod:
    metadata, spec = item["metadata"], item["spec"]
    conditions = item["status"].get("conditions", ())
    annotations: dict[str, str] = metadata.get("annotations", {})
    owned = any(owner.get("controller") for owner in metadata.get("ownerReferences", ()))
    safe = annotations.get(_SAFE)
    return SeenPod(
        metadata["name"],
        metadata["namespace"],
        metadata.get("labels", {}),
        dict(of_spec(msgspec.convert(spec, PodSpec)).requests),
        spec.get("nodeName"),
        unschedulable="nodeName" not in spec
        and any(one.get("reason") == "Unschedulable" for one in conditions),
        bound_to=_only_node(spec),
        may_move=safe == "true" or (owned and safe != "false"),
        spread=_spread(spec),
    )


def _only_node(spec: dict[str, Any]) -> str | None:
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ())
    return next((term["matchFields"][0]["values"][0] for term in terms if "matchFields" in term), None)


def _spread(spec: dict[str, Any]) -> tuple[Mapping[str, str], int] | None:
    """Return the first constraint that allows a number of pods per node, whatever other nodes have."""
    for one in spec.get("topologySpreadConstraints", ()):
        if one["whenUnsatisfiable"] == "DoNotSchedule" and one.get("minDomains"):
            return one["labelSelector"]["matchLabels"], one["maxSkew"]
    return None
