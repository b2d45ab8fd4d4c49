"""A separate watch of simulated pods: counts the events, and records when each pod was ready and where."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sandlot_contract import names
from sandlot_contract.ids import InstanceId
from sandlot_controller.plan.pod import chosen_node
from sandlot_kube import clock, paths
from sandlot_kube.client import KubeClient
from sandlot_kube.objects import Pod
from sandlot_kube.reflector import Reflector

from loadtests.cluster.stub_pods import StubPods


@dataclass
class PodWatch:
    stub: StubPods  # to which every pod is added
    events: int = 0
    ready_at: dict[str, float] = field(default_factory=dict)  # wall clock of kwok's status
    nodes: dict[str, str] = field(default_factory=dict)  # of the pods that have one
    most_starting: int = 0  # pods on a node, or meant for it, that were not ready, at any time
    _starting: dict[str, str] = field(default_factory=dict)  # those of now
    _starts: Counter[str] = field(default_factory=Counter[str])  # by node

    @asynccontextmanager
    async def following(self, client: KubeClient, namespace: str) -> AsyncIterator[PodWatch]:
        reflector = Reflector(
            client,
            paths.pods(namespace),
            item=Pod,
            params={"labelSelector": names.SANDBOX_PODS},
            replaced=self._replaced,
            changed=self._changed,
            deleted=lambda pod: self._deleted(pod.metadata.name),
        )
        task = asyncio.create_task(reflector.run())
        try:
            await reflector.synced.wait()
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def noticed_after(self, pods: Iterable[str]) -> list[float]:
        """Return the sorted seconds from each pod's ready status to the gateway's probe, after which it is claimable."""
        return sorted(self.stub.asked[name] - self.ready_at[name] for name in pods if name in self.stub.asked)

    def _replaced(self, pods: list[Pod]) -> None:
        for pod in pods:
            self._look(pod)

    def _changed(self, pod: Pod) -> None:
        self.events += 1
        self._look(pod)

    def _deleted(self, name: str) -> None:
        self.events += 1
        self.nodes.pop(name, None)
        self.stub.forget(InstanceId(name))
        self._started(name)

    def _started(self, name: str) -> None:
        if (node := self._starting.pop(name, None)) is not None:
            self._starts[node] -= 1

    def _look(self, pod: Pod) -> None:
        name = pod.metadata.name
        self.stub.know(InstanceId(name), template=pod.metadata.labels.get(names.LABEL_TEMPLATE, ""))
        ready = pod.condition("Ready")
        is_ready = ready is not None and ready.status == "True"
        node = pod.spec.node_name or chosen_node(pod.metadata)
        if node is not None and name not in self.nodes:
            self.nodes[name] = node
            if not is_ready:
                self._starting[name] = node
                self._starts[node] += 1
                self.most_starting = max(self.most_starting, self._starts[node])
        if is_ready:
            self._started(name)
            if pod.status.pod_ip is not None:
                self.stub.ready(InstanceId(name), pod.status.pod_ip)
        if ready is not None and is_ready and (at := clock.seconds(ready.message)) is not None:
            self.ready_at.setdefault(pod.metadata.name, at)
