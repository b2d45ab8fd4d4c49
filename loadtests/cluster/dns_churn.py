"""DNS of a cluster whose pods come and go: kube-controller-manager writes EndpointSlices of ten thousand simulated pods,
CoreDNS answers from them, and probes measure how late its answers are.

One population of pods, measured three times: with a record for each sandbox and kubeadm's Corefile, the same with the
chart's Corefile, and as the chart installs it: without records of sandboxes.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil
from sandlot_contract.ids import InstanceId
from sandlot_contract.names import API_VERSION, POOL_KIND
from sandlot_controller.plan.pod import pool_pod
from sandlot_controller.settings import Settings
from sandlot_kube import paths
from sandlot_kube.client import KubeClient
from sandlot_kube.objects import SandboxPool

from loadtests.cluster import dns_server, parts
from loadtests.cluster.control_plane import AT_ONCE, until_running
from loadtests.cluster.dns_probes import Probes
from loadtests.cluster.dns_query import AAAA, Asker, asking
from loadtests.cluster.many_pods import ADDRESS
from loadtests.cluster.simulated_cluster import ANNOTATED, SimulatedCluster, measured
from loadtests.reading import Reading
from tests.kube.apiserver import ApiServer

WAYS = {  # name -> the Corefile, and whether each sandbox has a record
    "default": (dns_server.KUBEADM, True),
    "corefile": (dns_server.OURS, True),
    "ours": (dns_server.OURS, False),
}
ROWS = ("cpu", "memory", "lag", "writes")
SERVICE, BESIDE, GATEWAY = "sandboxes", "beside", "gateway-webhooks"
_NODES = 10
_LONGEST = 1500.0  # seconds for the whole run: six times as long as on a machine without other work
PROGRAMS = ("kwok", "kube-controller-manager", "coredns")
_CONTROLLERS = ("endpoints-controller", "endpointslice-controller")


@dataclass(frozen=True, slots=True)
class Size:
    pods: int = 10_000
    changes: int = 50  # a second: half of them are pods made, half pods deleted
    seconds: float = 30.0  # of each way


async def dns_churn(size: Size = Size()) -> dict[str, Reading]:
    """Measure the rows of this file: `cpu_default` and so on. Raises RuntimeError if it takes too long."""
    return await measured(
        lambda cluster: _measured(cluster, size),
        name="dns",
        what=f"{size.pods} pods",
        longest=_LONGEST,
        programs=PROGRAMS,
    )


async def _measured(cluster: SimulatedCluster, size: Size) -> dict[str, Reading]:
    await cluster.make_nodes(_NODES)
    cluster.start_kwok(stages=ANNOTATED, at_once=AT_ONCE)
    pods = Pods(cluster.client, cluster.namespace)
    begun = time.monotonic()
    await pods.fill(size.pods)
    filled = time.monotonic() - begun
    manager = cluster.start_controller_manager(*_CONTROLLERS)
    await _make_services(cluster.client, cluster.namespace)
    run = _Run(size, cluster.server, cluster.client, cluster.namespace, cluster.directory, pods, manager)
    found: dict[str, Reading] = {}
    for way, (corefile, records) in WAYS.items():
        if not records:
            await run.remove_records()
        await run.until_listed(size.pods if records else 0)
        readings = await run.measure(corefile, records=records)
        found |= {f"{row}_{way}": reading for row, reading in readings.items()}
    found["cpu_default"].parts["pods made in"] = f"{filled:.0f} s"
    return found


async def _make_services(client: KubeClient, namespace: str) -> None:
    """Make the sandboxes' Service, another headless one beside it, and the one that sidecars look up."""
    sandboxes = {"app.kubernetes.io/name": "sandlot", "app.kubernetes.io/component": "sandbox"}
    for name, selector, headless in (
        (SERVICE, sandboxes, True),
        (BESIDE, {BESIDE: "true"}, True),
        (GATEWAY, {"app.kubernetes.io/component": "gateway"}, False),
    ):
        spec = {"selector": selector, "ports": [{"port": 8700}], "publishNotReadyAddresses": True}
        if headless:
            spec["clusterIP"] = "None"
        body = {"metadata": {"name": name}, "spec": spec}
        await client.request("POST", paths.services(namespace), body=body)


@dataclass
class Pods:
    """The simulated pods of a pool, in the order of their age."""

    client: KubeClient
    namespace: str
    made: int = 0
    living: deque[str] = field(default_factory=deque[str])
    _pool: SandboxPool = field(init=False)
    _settings: Settings = field(init=False)

    def __post_init__(self) -> None:
        template = {"image": "python:3.12", "cpu": 1, "memory": 1 << 30, "disk": 5 << 30, "pids": 1024}
        body = {
            "apiVersion": API_VERSION,
            "kind": POOL_KIND,
            "metadata": {"name": "churn"},
            "spec": {"size": 0, "template": template},
        }
        self._pool = msgspec.convert(body, SandboxPool)
        values = {
            "namespace": self.namespace,
            "key_file": Path("/nonexistent"),
            "webhook_url": f"http://{GATEWAY}.{self.namespace}.svc.{dns_server.DOMAIN}.:8641/internal/sidecar",
            "sidecar_image": "sandlot/sidecar:1",
            "subdomain": SERVICE,
        }
        self._settings = Settings.model_validate(values)

    async def fill(self, count: int) -> None:
        """Make so many and wait until they run."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def make() -> None:
            async with slots:
                self.living.append(await self.make())

        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(make())
        await until_running(self.client, self.namespace)

    async def make(self, *, beside: bool = False) -> str:
        """Make one with an address of its own; `beside`: it belongs to the other Service, too."""
        number = self.made
        self.made += 1
        name = f"i-{number:016x}"
        pod = pool_pod(self._pool, instance_id=InstanceId(name), token="none", settings=self._settings)
        pod["spec"]["nodeName"] = f"kwok-{number % _NODES}"
        pod["metadata"]["annotations"][ADDRESS] = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        if beside:
            pod["metadata"]["labels"][BESIDE] = "true"
        await self.client.request("POST", paths.pods(self.namespace), body=pod)
        return name

    async def delete(self, name: str) -> None:
        """Delete one at once, as its node does in the end."""
        await self.client.request("DELETE", paths.pods(self.namespace, name), body={"gracePeriodSeconds": 0})

    async def replace_oldest(self) -> None:
        made, _ = await asyncio.gather(self.make(), self.delete(self.living.popleft()))
        self.living.append(made)


@dataclass(frozen=True, slots=True)
class _Run:
    size: Size
    server: ApiServer
    client: KubeClient
    namespace: str
    directory: Path
    pods: Pods
    manager: psutil.Process

    async def measure(self, corefile: str, *, records: bool) -> dict[str, Reading]:
        """Replace pods for some seconds, with one probe a second."""
        with dns_server.coredns(self.directory, self.server, corefile=corefile) as coredns:
            async with asking(dns_server.HOST) as asker:
                probes = Probes(self.pods, asker, records=records, service=SERVICE, beside=BESIDE)
                await self._until_answered(asker, records=records)
                before, used, managed = self._writes(), parts.cpu(coredns), parts.cpu(self.manager)
                begun = time.monotonic()
                async with asyncio.TaskGroup() as group:
                    probing = group.create_task(probes.run(self.size.seconds))
                    changes = await self._churn(asker, lookups=records)
                    took = time.monotonic() - begun
                    cpu = (parts.cpu(coredns) - used) / took
                    managed = (parts.cpu(self.manager) - managed) / took
                    memory = coredns.memory_info().rss
                    await probing
                    writes = self._writes() - before
        changes += probes.changes
        lag = probes.appeared if records else probes.appeared_beside
        told = {"changes/s": f"{changes / took:.1f}", "for": f"{took:.0f} s"}
        return {
            "cpu": Reading(cpu * 1000, {**told, "kube-controller-manager": f"{managed * 1000:.0f} mcores"}),
            "memory": Reading(memory / 2**20),
            "lag": Reading(max(lag), probes.told(), probes.curves()),
            "writes": Reading(
                writes.total() / changes, {name: str(count) for name, count in writes.most_common()}
            ),
        }

    async def remove_records(self) -> None:
        """Delete the sandboxes' Service, and its EndpointSlices as the garbage collector does."""
        await self.client.request("DELETE", paths.services(self.namespace, SERVICE))
        selector = {"labelSelector": f"kubernetes.io/service-name={SERVICE}"}
        slices = paths.endpoint_slices(self.namespace)
        await self.client.request("DELETE", slices, params=selector, timeout=60.0)

    async def until_listed(self, pods: int) -> None:
        """Wait until the EndpointSlices of the sandboxes have so many."""
        selector = {"labelSelector": f"kubernetes.io/service-name={SERVICE}"}

        async def listed() -> bool:
            found = await self.client.request(
                "GET", paths.endpoint_slices(self.namespace), params=selector, timeout=60.0
            )
            slices = json.loads(found)["items"]
            return sum(len(one["endpoints"] or []) for one in slices) == pods

        await parts.until(listed)

    async def _until_answered(self, asker: Asker, *, records: bool) -> None:
        """Wait until the newest pod's record answers, or without records that of a Service."""
        wanted = f"{self.pods.living[-1]}.{SERVICE}" if records else GATEWAY

        async def answered() -> bool:
            return bool(await asker.ask(f"{wanted}.{self.namespace}.svc.{dns_server.DOMAIN}"))

        await parts.until(answered)

    async def _churn(self, asker: Asker, *, lookups: bool) -> int:
        """Replace pods at the rate; return the number of changes. `lookups`: sidecars look up the gateway's name."""
        name = f"{GATEWAY}.{self.namespace}.svc.{dns_server.DOMAIN}"
        slots = asyncio.Semaphore(AT_ONCE)
        replaced = 0

        async def replace() -> None:
            nonlocal replaced
            async with slots:
                await self.pods.replace_oldest()
            replaced += 1
            if lookups:
                await asyncio.gather(asker.ask(name), asker.ask(name, kind=AAAA))

        begun = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(int(self.size.seconds * self.size.changes / 2)):
                await asyncio.sleep(begun + number * 2 / self.size.changes - time.monotonic())
                group.create_task(replace())
        return 2 * replaced

    def _writes(self) -> Counter[str]:
        """Return the writes of EndpointSlices and Endpoints so far."""
        every = parts.writes(self.server, namespace=self.namespace)
        return Counter({name: count for name, count in every.items() if "endpoint" in name})
