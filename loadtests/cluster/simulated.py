"""Ten thousand pods on a thousand nodes: the real controller makes them, kube-scheduler places them, kwok runs them, the
real gateway follows, and some hundred sandboxes are claimed and deleted meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

from sandlot import AsyncClient, AsyncSandbox
from sandlot_contract.names import API_VERSION, POOL_KIND
from sandlot_grade.report.stats import percentile
from sandlot_kube import paths
from sandlot_kube.client import KubeClient

from loadtests.cluster import parts
from loadtests.cluster.pod_watch import PodWatch
from loadtests.cluster.simulated_cluster import SimulatedCluster, measured
from loadtests.reading import Reading
from tests.kube.apiserver import ApiServer

ROWS = ("controller_memory", "controller_cpu", "warm_memory", "warm_cpu", "noticed", "writes_simulated")
AT_ONCE = 30  # sandboxes that exist at the same time
REST = 10.0  # seconds without load, to measure the idle cost
_RETENTION = 5.0  # seconds that an ended Sandbox stays after its minute: its end may be written 2 s late
_LONGEST = 580.0  # seconds for the whole run


@dataclass(frozen=True, slots=True)
class Size:
    pods: int = 10_000
    nodes: int = 1_000
    pools: int = 5
    claimed: int = 300


async def simulated(size: Size = Size()) -> dict[str, Reading]:
    """Measure the rows of this file."""
    what = f"{size.pods} pods on {size.nodes} nodes"
    return await measured(
        lambda cluster: _measured(cluster, size), name="simulated", what=what, longest=_LONGEST
    )


async def _measured(cluster: SimulatedCluster, size: Size) -> dict[str, Reading]:
    await cluster.make_nodes(size.nodes)
    cluster.start_kwok()
    cluster.start_scheduler()
    watch = await cluster.start_stubs(pods_end=False)
    gateway = await cluster.start_gateway()
    controller = await cluster.start_controller(retention=_RETENTION)
    return await _Run(
        size, cluster.server, cluster.client, cluster.namespace, gateway, controller, watch
    ).rows()


@dataclass(frozen=True, slots=True)
class _Look:
    """CPU seconds so far, resident bytes and pod events at one moment."""

    at: float
    cpu: dict[str, float]
    memory: dict[str, int]
    events: int


@dataclass(frozen=True, slots=True)
class _Run:
    size: Size
    server: ApiServer
    client: KubeClient
    namespace: str
    gateway: parts.Part
    controller: parts.Part
    watch: PodWatch

    async def rows(self) -> dict[str, Reading]:
        empty = self._look()
        await self._make_pools()
        await self._until_warm()
        full, first = self._look(), set(self.watch.ready_at)
        await self._until_told()
        rested = self._look()
        await asyncio.sleep(REST)
        rest = self._look()
        writes = await self._lives()
        later = [name for name in self.watch.ready_at if name not in first]
        return {
            "controller_memory": _memory("controller", empty, rest, pods=self.size.pods),
            "controller_cpu": _cpu("controller", empty, full, rested, rest, pods=self.size.pods),
            "warm_memory": _memory("gateway", empty, rest, pods=self.size.pods),
            "warm_cpu": _cpu("gateway", empty, full, rested, rest, pods=self.size.pods),
            "noticed": _noticed(self.watch.noticed_after(later), self.watch.noticed_after(first)),
            "writes_simulated": writes,
        }

    async def _make_pools(self) -> None:
        for number in range(self.size.pools):
            template = {
                "image": f"python:3.{number}",
                "cpu": 1,
                "memory": 1 << 30,
                "disk": 5 << 30,
                "pids": 1024,
            }
            resource = {
                "apiVersion": API_VERSION,
                "kind": POOL_KIND,
                "metadata": {"name": f"pool-{number}"},
                "spec": {
                    "size": self.size.pods // self.size.pools,
                    "template": template,
                    "reuse": {"policy": "never"},  # each sandbox costs a pod
                },
            }
            await self.client.request("POST", paths.pools(self.namespace), body=resource)

    async def _lives(self) -> Reading:
        """Claim and delete, wait for the refill and the removal of ended sandboxes; count the writes."""
        before = parts.writes(self.server, namespace=self.namespace)
        async with AsyncClient(url=self.gateway.url, api_key=self.gateway.api_key) as client:

            async def claimed(number: int) -> AsyncSandbox:
                return await AsyncSandbox.create(
                    pool=f"pool-{number % self.size.pools}",
                    image=f"python:3.{number % self.size.pools}",
                    client=client,
                )

            for _ in range(self.size.claimed // AT_ONCE):
                boxes = await asyncio.gather(*(claimed(number) for number in range(AT_ONCE)))
                await asyncio.gather(*(box.delete() for box in boxes))
        await self._until_warm()
        await self._until_removed()
        made = parts.writes(self.server, namespace=self.namespace) - before
        told = {name: f"{count / self.size.claimed:.2f}" for name, count in made.most_common()}
        return Reading(
            value=made.total() / self.size.claimed, parts={"sandboxes": str(self.size.claimed), **told}
        )

    async def _until_warm(self) -> None:
        """Wait until the gateway reports every pod as claimable."""

        async def warm() -> bool:
            return await self.gateway.number("sandlot_ready_instances") >= self.size.pods

        await parts.until(warm)

    async def _until_told(self) -> None:
        """Wait until the pools' statuses report it too: then no work is left."""

        async def told() -> bool:
            pools = await self._items(paths.pools(self.namespace))
            return sum(pool.get("status", {}).get("ready", 0) for pool in pools) >= self.size.pods

        await parts.until(told)

    async def _until_removed(self) -> None:
        async def removed() -> bool:
            return not await self._items(paths.sandboxes(self.namespace))

        await parts.until(removed)

    async def _items(self, path: str) -> list[dict[str, Any]]:
        return json.loads(await self.client.request("GET", path))["items"]

    def _look(self) -> _Look:
        both = {"gateway": self.gateway.process, "controller": self.controller.process}
        return _Look(
            time.monotonic(),
            {name: sum(process.cpu_times()[:2]) for name, process in both.items()},
            {name: process.memory_info().rss for name, process in both.items()},
            self.watch.events,
        )


def _memory(part: str, empty: _Look, full: _Look, *, pods: int) -> Reading:
    more = full.memory[part] - empty.memory[part]
    told = {"without pods": f"{empty.memory[part] / 2**20:.0f} MiB", "a pod": f"{more / pods / 1024:.1f} KiB"}
    return Reading(value=full.memory[part] / 2**20, parts=told)


def _cpu(part: str, empty: _Look, full: _Look, rested: _Look, rest: _Look, *, pods: int) -> Reading:
    used, events = full.cpu[part] - empty.cpu[part], full.events - empty.events
    idle = (rest.cpu[part] - rested.cpu[part]) / (rest.at - rested.at)
    told = {
        "an event": f"{used / events * 1e6:.0f} µs",
        "events": str(events),
        "all were claimable after": f"{full.at - empty.at:.0f} s",
        "at rest": f"{idle:.4f} cores",
    }
    return Reading(value=used / pods * 1000, parts=told)


def _noticed(later: list[float], first: list[float]) -> Reading:
    told = {"pods": str(len(later)), "p99": f"{percentile(later, 0.99) * 1000:.0f} ms"}
    for share in (0.5, 0.99):
        told[f"while all were made, p{share * 100:.0f}"] = f"{percentile(first, share) * 1000:.0f} ms"
    return Reading(
        value=percentile(later, 0.5) * 1000, parts=told, curves={"refilled": later, "filled": first}
    )
