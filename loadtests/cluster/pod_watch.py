"""A separate watch of simulated pods: counts the events and records when each pod was ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sandlot_contract import names
from sandlot_contract.ids import InstanceId
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

    @asynccontextmanager
    async def following(self, client: KubeClient, namespace: str) -> AsyncIterator[PodWatch]:
        reflector = Reflector(
            client,
            paths.pods(namespace),
            item=Pod,
            params={"labelSelector": names.SANDBOX_PODS},
            replaced=self._replaced,
            changed=self._changed,
            deleted=lambda _: self._count(),
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
        self._count()
        self._look(pod)

    def _count(self) -> None:
        self.events += 1

    def _look(self, pod: Pod) -> None:
        self.stub.know(InstanceId(pod.metadata.name))
        ready = pod.condition("Ready")
        if ready is not None and ready.status == "True" and (at := clock.seconds(ready.message)) is not None:
            self.ready_at.setdefault(pod.metadata.name, at)
