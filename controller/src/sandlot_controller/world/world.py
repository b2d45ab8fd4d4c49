"""Pods, sandboxes, pools and nodes as the watches report them, who claims which pod, and since when."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from sandlot_contract import names
from sandlot_kube import paths, verdicts
from sandlot_kube.client import KubeClient
from sandlot_kube.objects import Pod, Sandbox, SandboxPool
from sandlot_kube.reflector import Reflector
from sandlot_kube.verdicts import Verdict

from .claims import Claims
from .listeners import tell
from .nodes import Node, is_silent
from .silence import Silence

CATCH_UP = 5.0  # seconds in which a watch that works again shows what it has missed
_REMEMBERED = 10_000  # pods that were deleted before their claim was known


class World:
    """State of the cluster by name. Callbacks run in the event loop and return at once; `clock` is monotonic."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.pods: dict[str, Pod] = {}
        self.sandboxes: dict[str, Sandbox] = {}
        self.pools: dict[str, SandboxPool] = {}
        self.nodes: dict[str, Node] = {}
        self._claims = Claims(clock=clock, exists=self.pods.__contains__)
        self.claims = self._claims.recorded
        self.unrecorded_since = self._claims.unrecorded_since
        # A cold start has its pod's name, and may wait for its turn before it has a pod.
        self.first_seen: dict[str, float] = {}  # sandboxes
        self.pod_seen: dict[str, float] = {}  # pods, first, by name: a cold start's may be made again
        self.ready_since: dict[str, float] = {}  # pods
        self.starts: set[str] = set()  # pods that are neither ready nor over
        # pods that have ended, for a reason that the gateway may know
        self.uncertain_since: dict[str, float] = {}
        # nodes that no longer report to the control plane, and removed ones that have pods
        self.silence = Silence(clock=clock, shown_at=lambda: self.complete_since(Node) + CATCH_UP)
        self.silent_since = self.silence.since
        self.lost: dict[str, Verdict] = {}  # pods that died and were deleted without a known owner
        self.pod_listeners: list[Callable[[Pod, bool], None]] = []  # the flag: the pod is gone
        self.sandbox_listeners: list[Callable[[Sandbox, bool], None]] = []
        # called with a pod whose owner may have changed
        self.claim_listeners: list[Callable[[str], None]] = []
        # called with a node that has changed or is gone
        self.node_listeners: list[Callable[[str], None]] = []
        self.changed = asyncio.Event()
        self._watches: dict[type, Reflector[Any]] = {}

    def reflectors(self, client: KubeClient, *, namespace: str) -> list[Reflector[Any]]:
        self._watches = {
            Sandbox: Reflector(
                client,
                paths.sandboxes(namespace),
                item=Sandbox,
                replaced=self.sandboxes_replaced,
                changed=self.sandbox_changed,
                deleted=self.sandbox_deleted,
                clock=self.clock,
            ),
            Pod: Reflector(
                client,
                paths.pods(namespace),
                item=Pod,
                params={"labelSelector": names.SANDBOX_PODS},
                replaced=self.pods_replaced,
                changed=self.pod_changed,
                deleted=self.pod_deleted,
                clock=self.clock,
            ),
            SandboxPool: Reflector(
                client,
                paths.pools(namespace),
                item=SandboxPool,
                replaced=self.pools_replaced,
                changed=self.pool_changed,
                deleted=self.pool_deleted,
                clock=self.clock,
            ),
            Node: Reflector(
                client,
                paths.nodes(),
                item=Node,
                replaced=self.nodes_replaced,
                changed=self.node_changed,
                deleted=self.node_deleted,
                clock=self.clock,
            ),
        }
        return list(self._watches.values())

    def complete_since(self, kind: type) -> float:
        """Return since when the watch of these objects is complete; now, while it is not: what is missing may be there."""
        watch = self._watches.get(kind)
        if watch is None:
            return -math.inf  # told of everything without a watch
        if watch.failure is not None or watch.watching_since is None:
            return self.clock()
        return watch.watching_since

    def node_lost_at(self, node: str | None, *, grace: float) -> float | None:
        """Return when a node counts as lost after `grace` seconds of silence, or when to ask again; None: it reports."""
        return None if node is None else self.silence.lost_at(node, grace=grace)

    def confirm_silence(self, node: str) -> None:
        """Record that the API server, too, says that a node is silent."""
        self.silence.confirm(node)
        self._node_news(node)

    def claimed(self, pod: str) -> bool:
        return pod in self.claims or pod in self.unrecorded_since

    def claimants(self, pod: str) -> list[str]:
        """Return the Sandboxes that may end with this pod: more than one only if an end was not recorded."""
        return self._claims.claimants(pod)

    def released(self, pod: str) -> None:
        """Record that a pod's sidecar reports no owner."""
        if self._claims.release(pod):
            self._tell_claim(pod)

    def claimed_without_record(self, pod: str, generation: int | None = None) -> None:
        """Record that a pod's sidecar reports an owner, of this generation if known, but no Sandbox names the pod."""
        self._claims.put_unrecorded(pod, generation)
        self._tell_claim(pod)

    def remember(self, pod: str, verdict: Verdict) -> None:
        """Record why a pod was lost; the first verdict wins."""
        if pod in self.lost:
            return
        if len(self.lost) >= _REMEMBERED:
            del self.lost[next(iter(self.lost))]
        self.lost[pod] = verdict

    # Pods.

    def pods_replaced(self, pods: list[Pod]) -> None:
        for name in self.pods.keys() - {pod.metadata.name for pod in pods}:
            self.pod_deleted(self.pods[name])
        for pod in pods:
            self.pod_changed(pod)
        self._claims.pods_listed()

    def pod_changed(self, pod: Pod) -> None:
        name = pod.metadata.name
        before = self.pods.get(name)
        self.pods[name] = pod
        if before is not None and before.spec.node_name != pod.spec.node_name:
            self._forget_removed(before.spec.node_name)
        if before is None or before.spec.node_name != pod.spec.node_name:
            # The scheduler may know that the node is back before this watch of the nodes does.
            self.silence.doubt(pod.spec.node_name or "")
        self.pod_seen.setdefault(name, self.clock())
        ready = pod.condition("Ready")
        if ready is not None and ready.status == "True":
            self.ready_since.setdefault(name, self.clock())
        if name in self.ready_since or pod.status.terminal:
            self.starts.discard(name)
        else:
            self.starts.add(name)
        if (found := verdicts.of_pod(pod)) is not None and not found.certain:
            self.uncertain_since.setdefault(name, self.clock())
        node = pod.spec.node_name
        if node and node not in self.nodes:
            # The watches are independent: a new node's pod may be reported before the node.
            self.silence.begin(node)
        self._tell_pod(pod, gone=False)

    def pod_deleted(self, pod: Pod) -> None:
        name = pod.metadata.name
        self.pods.pop(name, None)
        self._claims.pod_gone(name)
        self.starts.discard(name)
        for times in (self.ready_since, self.uncertain_since):
            times.pop(name, None)
        if name not in self.sandboxes:
            self.pod_seen.pop(name, None)
        self._forget_removed(pod.spec.node_name)
        self._tell_pod(pod, gone=True)

    def _tell_pod(self, pod: Pod, *, gone: bool) -> None:
        self.changed.set()
        tell(self.pod_listeners, pod, gone)

    def look_again(self, pod: str) -> None:
        """Tell of a pod as if it had changed."""
        if (known := self.pods.get(pod)) is not None:
            self._tell_pod(known, gone=False)

    # Sandboxes.

    def sandboxes_replaced(self, sandboxes: list[Sandbox]) -> None:
        for name in self.sandboxes.keys() - {sandbox.metadata.name for sandbox in sandboxes}:
            self.sandbox_deleted(self.sandboxes[name])
        for sandbox in sandboxes:
            self.sandbox_changed(sandbox)

    def sandbox_changed(self, sandbox: Sandbox) -> None:
        name = sandbox.metadata.name
        before = self.sandboxes.get(name)
        self.sandboxes[name] = sandbox
        if before is not None and before.spec.waits and not sandbox.spec.waits:
            self.first_seen[name] = self.clock()  # its pod is expected from now on
        self.first_seen.setdefault(name, self.clock())
        if not sandbox.spec.waits:
            self._claims.put(sandbox)
            self._tell_claim(sandbox.instance_id)
        self._tell_sandbox(sandbox, gone=False)

    def sandbox_deleted(self, sandbox: Sandbox) -> None:
        name = sandbox.metadata.name
        pod = sandbox.instance_id
        self.sandboxes.pop(name, None)
        if self._claims.drop(sandbox):
            # Its pod is used and about to go; until then it must not count as warm.
            if pod in self.pods:
                self.claimed_without_record(pod, sandbox.spec.generation)
            self._tell_claim(pod)
        self.first_seen.pop(name, None)
        if name not in self.pods:
            self.pod_seen.pop(name, None)
        self._tell_sandbox(sandbox, gone=True)

    def _tell_claim(self, pod: str) -> None:
        tell(self.claim_listeners, pod)

    def _tell_sandbox(self, sandbox: Sandbox, *, gone: bool) -> None:
        self.changed.set()
        tell(self.sandbox_listeners, sandbox, gone)

    # Pools.

    def pools_replaced(self, pools: list[SandboxPool]) -> None:
        self.pools = {pool.metadata.name: pool for pool in pools}
        self.changed.set()

    def pool_changed(self, pool: SandboxPool) -> None:
        self.pools[pool.metadata.name] = pool
        self.changed.set()

    def pool_deleted(self, pool: SandboxPool) -> None:
        self.pools.pop(pool.metadata.name, None)
        self.changed.set()

    # Nodes.

    def nodes_replaced(self, nodes: list[Node]) -> None:
        for name in self.nodes.keys() - {node.metadata.name for node in nodes}:
            self.node_deleted(self.nodes[name])
        for node in nodes:
            self.node_changed(node)

    def node_changed(self, node: Node) -> None:
        name = node.metadata.name
        before = self.nodes.get(name)
        self.nodes[name] = node
        if is_silent(node):
            self.silence.begin(name)
        else:
            self.silence.end(name)
        # Heartbeats of 1,000 nodes change nothing that matters here.
        if before is None or (before.spec, before.ready()) != (node.spec, node.ready()):
            self._node_news(name)
        elif (before.metadata.labels, before.status.allocatable) != (
            node.metadata.labels,
            node.status.allocatable,
        ):
            self._tell_node(name)

    def node_deleted(self, node: Node) -> None:
        self.nodes.pop(node.metadata.name, None)
        self.silence.begin(node.metadata.name)
        self._forget_removed(node.metadata.name)
        self._node_news(node.metadata.name)

    def _forget_removed(self, node: str | None) -> None:
        """Forget a removed node with its last pod: another one may have its name."""
        if node in self.nodes or node not in self.silent_since:
            return
        if all(pod.spec.node_name != node for pod in self.pods.values()):
            self.silence.end(node)

    def _node_news(self, name: str) -> None:
        self._tell_node(name)
        for pod in list(self.pods.values()):
            if pod.spec.node_name == name:
                self._tell_pod(pod, gone=False)

    def _tell_node(self, name: str) -> None:
        self.changed.set()
        tell(self.node_listeners, name)
