"""The chart on a cluster as a place for load tests: installs, samples and uninstalls it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any

import msgspec
from sandlot import AsyncClient, AsyncSandbox
from sandlot.models import SandboxInfo
from sandlot_contract.ports import CONTROLLER_PORT, GATEWAY_PORT, WEBHOOK_PORT
from sandlot_contract.sidecar import WEBHOOK_PATH
from sandlot_kube import paths
from sandlot_kube.errors import KubeError

from loadtests.cluster import agents
from loadtests.cluster.site import POOL, Installation, Pool, Site
from loadtests.load import peers_in_pod, pods_exec
from loadtests.load.bare_pod import bare_pod
from loadtests.load.baselines import Baselines, Callers, MakeSandbox, Taken
from loadtests.load.kubelet import BARE, Account, NodeStats
from loadtests.load.open_files import OpenFiles, Part
from loadtests.load.peers import Peer
from loadtests.load.places import NOTHING, Listener, Needs, PlaceFailed
from loadtests.load.proc import ProcProbe
from loadtests.load.profile import Baseline, Images
from loadtests.load.sampling import Counts, Probe, Usage
from loadtests.load.task import COLD_MEMORY
from tests.cluster.shell import ClusterError
from tests.kubernetes import killing
from tests.kubernetes.stack import IMAGE

# Before it responds, a kubelet has gVisor's shims start a process for each of possibly hundreds of containers.
LOOK_SECONDS = 90.0
PORTS = {"gateway": GATEWAY_PORT, "controller": CONTROLLER_PORT}  # their metrics ports
_RESIDENT = re.compile(r"^process_resident_memory_bytes (\S+)$", re.MULTILINE)


class Cluster:
    """The cluster of $KUBECONFIG and $SANDLOT_TEST_CONTEXT.

    `runtime` is that of the sandboxes, runc or gvisor; `values` are of the chart, name to JSON. Checkpoints that profiles
    need are in a directory of one node, unless `values` name a claim.
    """

    kind = "cluster"
    image: str | None = IMAGE
    # Kubelets sample no more often, and each sample takes 30 ms of a node's core: on nodes that share two cores, a
    # sample every 5 s doubled the p99 of commands.
    every = 15.0

    def __init__(self, *, runtime: str, values: Mapping[str, str], needs: Needs = NOTHING) -> None:
        self.name = f"the chart on a cluster, sandboxes under {runtime}"
        self._runtime = runtime
        fusion = {"gateway.config.fusion": json.dumps([f"@{POOL}-{runtime}"])} if needs.fusion else {}
        self._installation = Installation({**fusion, **values}, checkpoints=needs.checkpoints)
        self._site: Site | None = None
        self._pool: Pool | None = None
        self._client: AsyncClient | None = None
        self._killed: dict[str, Any] = {}
        self._parts: list[Part] = []
        self._files = OpenFiles(self._metrics)
        # Faults, and images from its registry, only on the test cluster.
        self.breakable = self.has_images = not os.environ.get("SANDLOT_TEST_CONTEXT")

    @property
    def site(self) -> Site:
        assert self._site is not None, "the chart is installed"
        return self._site

    @property
    def client(self) -> AsyncClient:
        assert self._client is not None, "the chart is installed"
        return self._client

    async def __aenter__(self) -> Cluster:
        await self._installation.__aenter__()
        try:
            self._site = await self._installation.site()
        except BaseException:
            await self._installation.__aexit__()
            raise
        self._client = self._site.client()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.aclose()
        await self._installation.__aexit__()

    @asynccontextmanager
    async def pool(self, *, size: int, cpu: float | None, slots: bool) -> AsyncIterator[str | None]:
        """Make a pool, also of size 0, because its template sets the sandboxes' runtime."""
        async with self.site.pool(
            self._runtime, size=size, cpu=cpu or 1, reuse="tenant", slots=slots
        ) as pool:
            self._pool = pool
            try:
                yield pool.name
            finally:
                await self._files.close()
        self._pool = None

    @asynccontextmanager
    async def cold_pool(self, cpu: float | None) -> AsyncIterator[str | None]:
        template = {"memory": COLD_MEMORY}
        async with self.site.pool(
            self._runtime, size=0, cpu=cpu or 1, template=template, reuse="never", slots=True, name="cold"
        ) as pool:
            yield pool.name

    @asynccontextmanager
    async def images(self, wanted: Images | None) -> AsyncIterator[list[str]]:
        """Push images that no node has to the test cluster's registry; slots stay enabled for the profiles after this one."""
        if wanted is None:
            yield []
            return
        await self._installation.with_slots()
        self._parts = []  # gateways and controllers were replaced
        self.image = await agents.pushed_python()
        yield await agents.pushed_images(wanted.count)
        self.image = IMAGE

    async def supplied(self) -> dict[str, int]:
        return await agents.supplied(self.site)

    @asynccontextmanager
    async def bare(self, count: int) -> AsyncIterator[None]:
        """Run pods with two sleeping containers each, like a sandbox's."""
        namespace = self.site.stack.namespace
        pods = [bare_pod(f"{BARE}-{n}", runtime=self._runtime) for n in range(count)]
        if not pods:
            yield
            return
        made = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
        try:
            await self.site.kubectl("apply", "-n", namespace, "-f", "-", stdin=made)
            ready = ("--for=condition=Ready", "--timeout=90s")
            await self.site.kubectl("wait", "pod", "-l", f"app={BARE}", "-n", namespace, *ready)
            yield
        finally:
            await self.site.kubectl("delete", "pod", "-l", f"app={BARE}", "-n", namespace)

    def probe(self, generators: Callable[[], list[int]]) -> Probe:
        account = Account(parts=self.site.stack.namespace, sandboxes=self.site.stack.sandboxes)
        names: list[str] = []
        here = ProcProbe(mark=f"no-stack-of-{os.getpid()}", gateway=lambda: 0, generators=generators)

        async def look() -> dict[str, Usage]:
            names.extend([] if names else await self._node_names())
            own = await here()
            running = await self._running()
            self._files.ask(running)
            # One after the other: on nodes that share cores, concurrent requests would slow the load.
            parts = account.add([await self._stats(name) for name in names])
            for part, count in self._files.counts(running).items():
                if part in parts:
                    parts[part].descriptors = count
            return parts | own

        return look

    async def _running(self) -> list[Part]:
        """Return the pods of gateways and controllers."""
        if not self._parts:
            for part, port in PORTS.items():
                pods = await self.site.pods(component=part)
                self._parts += [(part, port, pod["metadata"]["name"]) for pod in pods]
        return self._parts

    async def _metrics(self, pod: str, port: int) -> str:
        assert self._pool is not None
        path = f"/api/v1/namespaces/{self.site.stack.namespace}/pods/{pod}:{port}/proxy/metrics"
        return (await self._pool.kube.request("GET", path)).decode()

    async def _stats(self, node: str) -> NodeStats:
        assert self._pool is not None
        # A kubelet that does not respond is missing in one sample; the run continues.
        with contextlib.suppress(KubeError):
            path = f"/api/v1/nodes/{node}/proxy/stats/summary"
            params = {"only_cpu_and_memory": "true"}
            body = await self._pool.kube.request("GET", path, params=params, timeout=LOOK_SECONDS)
            return msgspec.json.decode(body, type=NodeStats)
        return NodeStats()

    async def _node_names(self) -> list[str]:
        assert self._pool is not None
        body = await self._pool.kube.request("GET", "/api/v1/nodes")
        return [item["metadata"]["name"] for item in msgspec.json.decode(body)["items"]]

    def nodes(self) -> Counts:
        ready: dict[str, set[str]] = {}

        async def look() -> dict[str, int]:
            assert self._pool is not None
            with contextlib.suppress(KubeError):
                for pod in await self._pool.pods():
                    condition = pod.condition("Ready")
                    if condition is not None and condition.status == "True" and pod.spec.node_name:
                        ready.setdefault(pod.spec.node_name, set()).add(pod.metadata.uid)
            return {node: len(uids) for node, uids in sorted(ready.items())}

        return look

    def objects(self) -> Counts:
        namespace = self.site.stack.sandboxes
        kinds = {"pods": paths.pods(namespace), "sandboxes": paths.sandboxes(namespace)}

        async def one(path: str) -> int:
            # The response to a list of one item has the number of remaining items.
            assert self._pool is not None
            found = msgspec.json.decode(await self._pool.kube.request("GET", path, params={"limit": "1"}))
            return len(found["items"]) + found["metadata"].get("remainingItemCount", 0)

        async def look() -> dict[str, int]:
            counts: dict[str, int] = {}
            with contextlib.suppress(KubeError):
                for kind, path in kinds.items():
                    counts[kind] = await one(path)
            return counts

        return look

    async def baselines(self, taken: Baselines, plan: Baseline, *, make: MakeSandbox) -> None:
        assert self._pool is not None
        await pods_exec.measure(taken, plan, site=self.site, pool=self._pool, make=make)

    def pods_exec(
        self, callers: int, *, command: Sequence[str], make: MakeSandbox
    ) -> AbstractAsyncContextManager[Callers]:
        assert self._pool is not None
        return pods_exec.beside(callers, command=command, site=self.site, pool=self._pool, make=make)

    async def peer(self, found: Taken, plan: Baseline, box: AsyncSandbox, peer: Peer) -> None:
        await peers_in_pod.measure(found, plan, box, peer)

    async def listener(self) -> Listener:
        """Return the webhook port of each gateway, at its pod's address."""
        pods = await self.site.pods(component="gateway")
        return Listener([(pod["status"]["podIP"], WEBHOOK_PORT) for pod in pods], WEBHOOK_PATH)

    async def gateway_memory(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for pod in await self.site.pods(component="gateway"):
            name = pod["metadata"]["name"]
            # A restarted gateway would seem to use little memory.
            restarts = sum(each["restartCount"] for each in pod["status"]["containerStatuses"])
            told = _RESIDENT.search(await self._metrics(name, PORTS["gateway"]))
            if told is None:
                raise PlaceFailed(f"{name} does not tell what memory it has")
            found[f"{name}, started {restarts + 1} times"] = int(float(told[1]))
        return found

    async def kill(self, part: str) -> None:
        """Send SIGKILL to the process of one of the part's pods."""
        stack = self.site.stack
        try:
            self._killed = (await asyncio.to_thread(killing.pods, stack, part))[0]
            name = self._killed["metadata"]["name"]
            await asyncio.to_thread(killing.kill, stack.namespace, name, part)
        except (IndexError, ClusterError) as error:
            raise PlaceFailed(f"no {part} could be killed: {error}") from error

    async def whole(self, part: str) -> None:
        """Wait until the part's Deployment has all its pods, with the killed one restarted."""
        try:
            await asyncio.to_thread(killing.whole_again, self.site.stack, part, killed=self._killed)
        except (AssertionError, ClusterError) as error:
            raise PlaceFailed(f"{part} was killed and did not come back: {error}") from error

    async def lose(self, box: SandboxInfo) -> bool:
        """Send SIGKILL to the sidecar in the sandbox's pod."""
        assert self._pool is not None
        try:
            pod = await self._pool.pod_of(box)
            await asyncio.to_thread(killing.kill, self.site.stack.sandboxes, pod, "sidecar")
            return True
        except (TimeoutError, ClusterError) as error:
            raise PlaceFailed(f"the sidecar of {box.id} could not be killed: {error}") from error
