"""Plays scheduler and kubelets over a real API server: binds pods and writes their status; runs controllers there."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from sandlot_controller.act.node_agents import NodeAgents
from sandlot_controller.act.sidecars import Sidecars
from sandlot_controller.controller import Controller
from sandlot_controller.settings import Settings
from sandlot_kube import paths
from sandlot_kube.client import MERGE_PATCH, KubeClient
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Pod

from tests.controller.gateway_requests import GatewayRequests
from tests.controller.objects import container_status, is_ready
from tests.controller.watched import TIMEOUT

ROOM = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti"}


class Cluster(GatewayRequests):
    def __init__(self, client: KubeClient, *, key_file: Path) -> None:
        super().__init__(client, key_file=key_file)
        self.agents: NodeAgents | None = None  # None: the setting says
        self.seen_through = client  # by controllers
        self.made: list[str] = []  # every pod there ever was
        self.most_starting: dict[str, int] = {}  # node → at one time
        self.nodes: list[str] = []
        self.starts = True  # the kubelets bring pods up
        self.start_seconds = 0.0  # from the node to the running container
        self.passed = 0.0  # seconds more than really, to controllers
        self.confirms = True  # they say that a pod has ended
        self.image_error: str | None = None  # what they say of every image
        self.pods_per_node = 110  # of nodes that are made from now on
        self.cordoned: set[str] = set()
        self.taken: dict[str, int] = {}  # node -> pods of others, of which only the scheduler knows
        self._bound: dict[str, str] = {}  # pod -> node
        self._scheduled: set[str] = set()  # uids: a cold start's pod may be made again under its name
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Cluster]:
        async with self.sidecars.listening():
            try:
                async with self.watching(pod_changed=self._pod):
                    await self.node()
                    yield self
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                for name in self.nodes:
                    with suppress(KubeError):
                        await self.client.request("DELETE", paths.nodes(name))

    def settings(self, **values: Any) -> Settings:
        return Settings(
            **{
                "namespace": self.namespace,
                "lease_namespace": self.namespace,
                "key_file": self.key_file,
                "webhook_url": "http://gateway.example:8641/internal/sidecar",
                "sidecar_image": "sandlot/sidecar:test",
                "node_selector": {"test": self.namespace},
                "lease_seconds": 30.0,  # it outlives the pauses of a loaded machine
                "status_interval": 0.1,
                "status_delay": 0.0,
                "end_grace": 0.5,
                "node_grace": 0.5,
                "backoff": 0.2,
                "health_host": "127.0.0.1",
                "health_port": 0,
                **values,
            }
        )

    def controller(self, **values: Any) -> Controller:
        return Controller(
            self.seen_through,
            self.settings(**values),
            sidecars=Sidecars(port=self.sidecars.port, timeout=TIMEOUT),
            agents=self.agents,
            clock=lambda: time.monotonic() + self.passed,
            now=lambda: self.client.now() + self.passed,
        )

    @asynccontextmanager
    async def controlled(self, **values: Any) -> AsyncIterator[Controller]:
        controller = self.controller(**values)
        task = asyncio.create_task(controller.run())
        try:
            working = asyncio.create_task(controller.working.wait())
            await asyncio.wait([task, working], timeout=TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
            working.cancel()
            if task.done():
                await task
            assert controller.working.is_set()
            yield controller
            if task.done():
                await task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    # What the test does.

    async def node(self, *, ready: str = "True") -> str:
        name = f"node-{secrets.token_hex(4)}"
        labels = {"test": self.namespace}
        await self.client.request("POST", paths.nodes(), body={"metadata": {"name": name, "labels": labels}})
        self.nodes.append(name)
        # A new node is tainted until a controller that does not run here sees it ready.
        await self.client.request(
            "PATCH", paths.nodes(name), body={"spec": {"taints": None}}, content_type=MERGE_PATCH
        )
        await self.node_says(name, ready)
        return name

    async def cordon(self, name: str, *, off: bool = False) -> None:
        (self.cordoned.discard if off else self.cordoned.add)(name)
        body = {"spec": {"unschedulable": None if off else True}}
        await self.client.request("PATCH", paths.nodes(name), body=body, content_type=MERGE_PATCH)
        if off:
            for pod in [pod for pod, one in self.pods.items() if one.spec.node_name is None]:
                self.spawn(self.schedule(pod))

    async def node_says(self, name: str, ready: str) -> None:
        body = {
            "status": {
                "conditions": [{"type": "Ready", "status": ready}],
                "allocatable": {**ROOM, "pods": str(self.pods_per_node)},
            }
        }
        await self.client.request("PATCH", paths.nodes(name) + "/status", body=body, content_type=MERGE_PATCH)

    async def pod_says(self, name: str, **status: Any) -> None:
        await self.client.request(
            "PATCH",
            paths.pods(self.namespace, name) + "/status",
            body={"status": status},
            content_type=MERGE_PATCH,
        )

    async def waits(self, pod: str, reason: str, message: str) -> None:
        state = {"waiting": {"reason": reason, "message": message}}
        await self.pod_says(pod, containerStatuses=[container_status("sandbox", state)])

    async def dies(self, pod: str, container: str, *, code: int, reason: str = "Error") -> None:
        state = {"terminated": {"exitCode": code, "reason": reason}}
        await self.pod_says(pod, containerStatuses=[container_status(container, state)])

    def warm(self, pool: str = "p") -> list[str]:
        """Pods of the pool that run and that no record names."""
        named = {one.spec.pod_name for one in self.sandboxes.values()}
        return sorted(
            name
            for name, pod in self.pods.items()
            if pod.metadata.labels.get("sandlot.dev/pool") == pool
            and pod.metadata.deletion_timestamp is None
            and name not in named
            and is_ready(pod)
        )

    # What the cluster does.

    def _pod(self, pod: Pod) -> None:
        name = pod.metadata.name
        if name not in self.made:
            self.made.append(name)
        if pod.metadata.uid not in self._scheduled:
            self._scheduled.add(pod.metadata.uid)
            if self.starts:
                self.spawn(self.schedule(name))
        elif pod.spec.node_name and not is_ready(pod):
            starting = [
                one.spec.node_name
                for one in self.pods.values()
                if one.spec.node_name and not is_ready(one) and one.metadata.deletion_timestamp is None
            ]
            for node in set(starting):
                self.most_starting[node] = max(self.most_starting.get(node, 0), starting.count(node))
        # No kubelet confirms the end of a pod.
        if pod.metadata.deletion_timestamp is not None and pod.spec.node_name and self.confirms:
            self.spawn(self._gone(name))

    def spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def schedule(self, name: str) -> None:
        """Always the first node that the pod allows and that has room, as a packing scheduler would; then it comes up."""
        raw = json.loads(await self.client.request("GET", paths.pods(self.namespace, name)))
        affinity = raw["spec"].get("affinity", {}).get("nodeAffinity", {})
        terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get(
            "nodeSelectorTerms", []
        )
        allowed = [value for term in terms for field in term["matchFields"] for value in field["values"]]
        node = next(
            (node for node in self.nodes if node in (allowed or [node]) and self._has_room(node)), None
        )
        with suppress(KubeError):
            if node is None:
                why = {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/1 nodes are available: 1 Too many pods." if allowed else "full",
                }
                await self.pod_says(name, conditions=[why])
                return
            self._bound[name] = node
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            await self.client.request("POST", paths.pods(self.namespace, name) + "/binding", body=body)
            await asyncio.sleep(self.start_seconds)
            if self.image_error is None:
                await self.up(name)
            else:
                await self.waits(name, "ErrImagePull", self.image_error)

    def _has_room(self, node: str) -> bool:
        if node in self.cordoned:
            return False
        here = sum(self._bound.get(pod) == node for pod in self.pods)
        return here + self.taken.get(node, 0) < self.pods_per_node

    async def up(self, name: str) -> None:
        running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        await self.pod_says(
            name,
            phase="Running",
            podIP="127.0.0.1",
            podIPs=[{"ip": "127.0.0.1"}],
            conditions=[{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
            containerStatuses=[container_status("sandbox", running), container_status("sidecar", running)],
        )

    async def _gone(self, name: str) -> None:
        with suppress(KubeError):
            await self.delete(paths.pods(self.namespace, name), gracePeriodSeconds=0)
