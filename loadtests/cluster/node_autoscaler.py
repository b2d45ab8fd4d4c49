"""The rules by which cluster-autoscaler adds and removes nodes, for kwok's nodes: a node for pods that no node has room
for, and away with one that is less than half used and whose pods may all move.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sandlot_kube import paths
from sandlot_kube.client import MERGE_PATCH, KubeClient
from sandlot_kube.errors import KubeError

from loadtests.cluster.control_plane import ROOM, make_node
from loadtests.cluster.seen_cluster import SeenCluster, SeenNode, SeenPod, look

TAINT = "ToBeDeletedByClusterAutoscaler"
_HALF = 0.5  # of a node: cluster-autoscaler's scale-down-utilization-threshold
_GONE_PAUSE = 0.2  # seconds between two looks at a node that empties


@dataclass(frozen=True, slots=True)
class Rules:
    """Times are in seconds."""

    room: Mapping[str, str] = field(default_factory=lambda: dict(ROOM))  # of each node
    least: int = 1  # nodes
    most: int = 50
    delay: float = 20.0  # from the decision until the node is there
    scan: float = 1.0
    unneeded: float = 10.0  # that a node has to be unneeded before it goes
    patience: float = 60.0  # for a tainted node to empty of what may not be evicted


@dataclass
class NodeAutoscaler:
    client: KubeClient
    rules: Rules
    added: int = 0
    removed: int = 0
    given_back: int = 0  # tainted nodes that did not empty in time
    evicted: list[str] = field(default_factory=list[str])  # pods
    seen: SeenCluster = field(default_factory=lambda: SeenCluster({}, []))
    _coming: int = 0
    _unneeded: dict[str, float] = field(default_factory=dict[str, float])  # node -> since when
    _tasks: set[asyncio.Task[None]] = field(default_factory=set["asyncio.Task[None]"])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[NodeAutoscaler]:
        """Scan until the end of the block; an error of a scan or a removal ends the block."""
        async with asyncio.TaskGroup() as group:
            scanning = group.create_task(self._scan(group))
            try:
                yield self
            finally:
                scanning.cancel()
                for task in tuple(self._tasks):
                    task.cancel()

    def nodes(self) -> set[str]:
        """Return the nodes of the last scan."""
        return set(self.seen.nodes)

    async def add(self) -> None:
        """Create a node at once."""
        self.added += 1
        await make_node(self.client, f"auto-{self.added}", room=self.rules.room)

    async def cordon(self, node: str) -> None:
        """Cordon a node as `kubectl cordon` does."""
        await self._patch(node, {"unschedulable": True})

    async def remove(self, node: str) -> None:
        """Evict what is left on a drained node, and delete it."""
        await self._evict(node)
        await self.client.request("DELETE", paths.nodes(node))
        self.removed += 1

    async def _scan(self, group: asyncio.TaskGroup) -> None:
        while True:
            self.seen = seen = await look(self.client)
            for _ in range(self._wanted(seen)):
                self._coming += 1
                self._begin(group, self._arrive())
            for node in self._removable(seen):
                self._begin(group, self._take_away(node))
            await asyncio.sleep(self.rules.scan)

    def _begin(self, group: asyncio.TaskGroup, work: Coroutine[None, None, None]) -> None:
        task = group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # More nodes.

    def _wanted(self, seen: SeenCluster) -> int:
        """Return how many more nodes the waiting pods need, beyond those that come."""
        free = [seen.empty(self.rules.room) for _ in range(self._coming)]
        free += [node for node in seen.nodes.values() if node.takes_pods]
        coming = len(seen.nodes) + self._coming
        wanted = 0
        for pod in seen.unschedulable():
            target = next((node for node in free if node.fits(pod)), None)
            if target is None and coming + wanted < self.rules.most:
                target = seen.empty(self.rules.room)
                if not target.fits(pod):
                    continue
                free.append(target)
                wanted += 1
            if target is not None:
                target.put(pod)
        return wanted

    async def _arrive(self) -> None:
        await asyncio.sleep(self.rules.delay)
        await self.add()
        self._coming -= 1

    # Fewer nodes.

    def _removable(self, seen: SeenCluster) -> list[str]:
        """Return the nodes that have been unneeded for long enough; those that stay have room for what moves."""
        now, found = time.monotonic(), list[str]()
        staying = {name: node for name, node in seen.nodes.items() if node.takes_pods}
        for name, node in list(staying.items()):
            others = [other for other in staying.values() if other.name != name]
            if len(others) < self.rules.least or not _may_go(node, others):
                self._unneeded.pop(name, None)
                continue
            since = self._unneeded.setdefault(name, now)
            if now - since >= self.rules.unneeded:
                for pod in node.pods:
                    next(other for other in others if other.fits(pod)).put(pod)
                del staying[name], self._unneeded[name]
                found.append(name)
        for name in self._unneeded.keys() - seen.nodes.keys():
            del self._unneeded[name]
        return found

    async def _take_away(self, node: str) -> None:
        """Taint the node, wait until it has no pod that may not be evicted, evict the others, and delete it."""
        taint = {"key": TAINT, "value": str(int(time.time())), "effect": "NoSchedule"}
        await self._patch(node, {"unschedulable": True, "taints": [taint]})
        until = time.monotonic() + self.rules.patience
        while any(not pod.may_move for pod in (await look(self.client)).on(node)):
            if time.monotonic() > until:
                await self._patch(node, {"unschedulable": None, "taints": None})
                self.given_back += 1
                break
            await asyncio.sleep(_GONE_PAUSE)
        else:
            await self.remove(node)

    async def _patch(self, node: str, spec: dict[str, object]) -> None:
        await self.client.request("PATCH", paths.nodes(node), body={"spec": spec}, content_type=MERGE_PATCH)

    async def _evict(self, node: str) -> None:
        """Evict the node's pods as often as their disruption budgets want, until it has none."""
        while pods := (await look(self.client)).on(node):
            for pod in pods:
                if await self._evicted(pod):
                    self.evicted.append(pod.name)
            await asyncio.sleep(_GONE_PAUSE)

    async def _evicted(self, pod: SeenPod) -> bool:
        about = {"name": pod.name, "namespace": pod.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
        try:
            where = f"{paths.pods(pod.namespace, pod.name)}/eviction"
            await self.client.request("POST", where, body=body)
        except KubeError as error:
            if error.status not in (404, 429):
                raise
            return False
        return True


def _may_go(node: SeenNode, others: list[SeenNode]) -> bool:
    if node.used() >= _HALF or not all(pod.may_move for pod in node.pods):
        return False
    room = [other.copy() for other in others]
    for pod in node.pods:
        target = next((other for other in room if other.fits(pod)), None)
        if target is None:
            return False
        target.put(pod)
    return True
