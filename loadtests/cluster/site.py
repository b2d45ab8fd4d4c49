"""The benchmark's installation of the chart, and the operations that its rows need."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from kubernetes import client as kubernetes
from kubernetes import config
from sandlot import AsyncClient, AsyncPools, AsyncSandbox, SandboxInfo
from sandlot_contract.names import SANDBOX_PODS
from sandlot_kube import paths
from sandlot_kube.access import from_environment
from sandlot_kube.client import KubeClient
from sandlot_kube.objects import Pod

from tests.cluster.shell import ClusterError
from tests.kubernetes.prime.shared_directory import shared_directory
from tests.kubernetes.stack import IMAGE, Stack

RUNTIMES = ("runc", "gvisor")
KEPT = 5  # seconds that an ended Sandbox stays: the rows that count writes wait for its removal
# Values of the chart, name to JSON. Cold starts pull from the test cluster's registry, too.
SLOTS = {
    "nodeAgent.enabled": "true",
    "nodeAgent.config.minFree": "0",
    "slots.enabled": "true",
    "sandboxes.pods.imagePullPolicy": '"IfNotPresent"',
}
POOL = "bench"  # name of the pools, before their runtime
CLAIM = "gateway.checkpoints.claim"
_TEMPLATE = {"image": IMAGE, "cpu": 1, "memory": 512 << 20, "disk": 1 << 30}


@dataclass(frozen=True, slots=True)
class Site:
    """An installation. Rows create and delete pools, one at a time."""

    stack: Stack
    url: str
    api_key: str

    def client(self) -> AsyncClient:
        return AsyncClient(url=self.url, api_key=self.api_key)

    def core(self) -> kubernetes.CoreV1Api:
        """Return a client of the API server; do not share it between threads."""
        made = config.new_client_from_config(
            config_file=self.stack.kubeconfig, context=self.stack.context, persist_config=False
        )
        return kubernetes.CoreV1Api(made)

    @asynccontextmanager
    async def pool(
        self,
        runtime: str,
        *,
        size: int,
        reuse: str,
        cpu: float = 1,
        template: Mapping[str, Any] | None = None,
        slots: bool = False,
        name: str = POOL,
    ) -> AsyncIterator[Pool]:
        """Fill a pool, and remove it with all sandboxes and pods at the end. `template` overrides the default one.

        `reuse`: the pool's policy; with `never` pods are replaced and claims are recorded at once. `slots`: it has no image, and each create names one.
        """
        async with self.client() as client, self._kube() as kube:
            wanted = {**_TEMPLATE, "cpu": cpu, **(template or {})}
            if slots:
                del wanted["image"]
            pool = Pool(self, f"{name}-{runtime}", wanted.get("image"), client, kube)
            if runtime == "gvisor":
                wanted["runtimeClass"] = "gvisor"
            metadata = {"name": pool.name, "namespace": self.stack.sandboxes}
            body = {
                "apiVersion": "sandlot.dev/v1alpha1",
                "kind": "SandboxPool",
                "metadata": metadata,
                "spec": {"size": size, "template": wanted, "reuse": {"policy": reuse}},
            }
            try:
                await self.kubectl("apply", "-f", "-", stdin=json.dumps(body))
                await pool.full(size, timeout=60 + 6 * size)
                yield pool
            finally:
                await self.kubectl("delete", "sandboxpool", pool.name, "-n", self.stack.sandboxes)
                await self.empty()

    @asynccontextmanager
    async def _kube(self) -> AsyncIterator[KubeClient]:
        access = from_environment(self.stack.context, environ={"KUBECONFIG": self.stack.kubeconfig})
        kube = KubeClient(access)
        try:
            yield kube
        finally:
            await kube.close()

    async def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return await asyncio.to_thread(self.stack.kubectl, *words, stdin=stdin, timeout=300)

    async def pods(self, *, component: str) -> list[dict[str, Any]]:
        """Return the pods of `gateway` or `controller`."""
        label = f"app.kubernetes.io/component={component}"
        found = await asyncio.to_thread(self.stack.get, "pods", "-n", self.stack.namespace, "-l", label)
        return found["items"]

    async def empty(self, *, timeout: float = 240) -> None:
        """End every sandbox and wait until no pod is left. Raises TimeoutError."""
        listing = ("get", "pods", "-n", self.stack.sandboxes, "-l", SANDBOX_PODS, "-o", "name")
        async with self.client() as client, asyncio.timeout(timeout):
            while (await self.kubectl(*listing)).strip():
                # List again each time: pages of one listing may come from gateways that do not know the same sandboxes yet.
                for info in await AsyncSandbox.list(client=client):
                    box = await AsyncSandbox.connect(info.id, client=client)
                    await box.delete()
                await asyncio.sleep(0.5)

    async def in_pod(self, pod: str, command: str, *, namespace: str, container: str) -> str:
        """Run a shell command in a container and return its output."""
        return await self.kubectl("exec", pod, "-n", namespace, "-c", container, "--", "sh", "-c", command)

    async def metrics(self, pod: str) -> str:
        """Return one gateway's metrics text."""
        script = (
            "import sys, urllib.request as u; "
            "print(u.urlopen(u.Request('http://127.0.0.1:8642/metrics', "
            "headers={'Authorization': 'Bearer ' + sys.argv[1]})).read().decode())"
        )
        command = f"python3 -c {shlex.quote(script)} {shlex.quote(self.api_key)}"
        return await self.in_pod(pod, command, namespace=self.stack.namespace, container="gateway")


class PodList(msgspec.Struct):
    items: list[Pod]


@dataclass(frozen=True, slots=True)
class Pool:
    site: Site
    name: str
    image: str | None  # None: of slots
    client: AsyncClient
    kube: KubeClient

    async def pods(self) -> list[Pod]:
        """Return the pods of all sandboxes, also warm ones."""
        path = paths.pods(self.site.stack.sandboxes)
        body = await self.kube.request("GET", path, params={"labelSelector": SANDBOX_PODS})
        return msgspec.json.decode(body, type=PodList).items

    async def create(self, image: str | None = None, *, wait: float = 120) -> AsyncSandbox:
        """Create a sandbox; in slots, from this image."""
        return await AsyncSandbox.create(image or self.image, pool=self.name, client=self.client, wait=wait)

    async def create_cold(self, *, wait: float = 120) -> AsyncSandbox:
        """Create a sandbox that no pool fits, with the chart's default runtime."""
        return await AsyncSandbox.create(
            IMAGE, cpu=1, memory=480 << 20, disk=1 << 30, client=self.client, wait=wait
        )

    async def full(self, size: int, *, timeout: float = 120) -> None:
        """Wait until this many sandboxes are claimable and none is starting. Raises TimeoutError."""
        pools = AsyncPools(client=self.client)
        async with asyncio.timeout(timeout):
            while True:
                found = [pool for pool in await pools.list() if pool.name == self.name]
                if found and found[0].ready >= size and not found[0].starting:
                    return
                await asyncio.sleep(0.05)

    async def pod_of(self, box: AsyncSandbox | SandboxInfo) -> str:
        """Return the pod that runs this sandbox."""
        async with asyncio.timeout(30):
            while True:
                found = json.loads(
                    await self.site.kubectl("get", "sandboxes", "-n", self.site.stack.sandboxes, "-o", "json")
                )
                for item in found["items"]:
                    spec = item["spec"]
                    if spec.get("sandboxId", spec.get("madeFor")) == box.id and "waitingUntil" not in spec:
                        return spec.get("podName") or item["metadata"]["name"]
                await asyncio.sleep(0.1)


class Installation:
    """Installs at the first use, uninstalls at the end: `async with`.

    `values` of the chart (name to JSON) win over those that load tests have anyway. With `checkpoints` and without a
    value for them, a directory of one node has them.
    """

    def __init__(self, values: Mapping[str, str] | None = None, *, checkpoints: bool = False) -> None:
        self._values = dict(values or {})
        self._checkpoints = checkpoints and CLAIM not in self._values
        self._directory = ExitStack()
        self._stack: Stack | None = None
        self._site: Site | None = None
        self._slots: dict[str, str] | None = None  # the values of the installation with slots

    async def __aenter__(self) -> Installation:
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            if self._stack is not None:
                await asyncio.to_thread(self._stack.uninstall)
        finally:
            await asyncio.to_thread(self._directory.close)  # only once no gateway mounts it

    async def site(self) -> Site:
        """Install the stack and return it. Raises ClusterError."""
        if self._site is None:
            if self._stack is not None:
                raise ClusterError("the chart could not be installed")
            self._stack = stack = _stack()
            if self._checkpoints:
                kept = shared_directory(stack, "kept")
                self._values[CLAIM] = json.dumps(await asyncio.to_thread(self._directory.enter_context, kept))
            await asyncio.to_thread(_install, stack, self._values)
            self._site = Site(stack, stack.url, stack.api_key)
        return self._site

    async def with_values(self, values: Mapping[str, str]) -> Site:
        """Change the installation to these values of the chart, until the next change. Raises ClusterError."""
        site = await self.site()
        await asyncio.to_thread(_install, site.stack, {**values, **self._values})
        self._slots = None
        return site

    async def with_slots(self, more: Mapping[str, str] | None = None) -> Site:
        """Enable slots and node agents, from now on, with `more` values. Raises ClusterError."""
        site = await self.site()
        wanted = {**SLOTS, **(more or {}), **self._values}
        if self._slots != wanted:
            await asyncio.to_thread(_install, site.stack, wanted)
            self._slots = wanted
        return site


def _stack() -> Stack:
    kubeconfig = os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")
    context = os.environ.get("SANDLOT_TEST_CONTEXT")
    return Stack(kubeconfig, context, "", os.environ.get("SANDLOT_TEST_RELEASE", "sandlot"))


def _install(stack: Stack, given: dict[str, str]) -> None:
    """Return the chart's values: both runtimes side by side, each with its own pools, other defaults kept."""
    values = {
        "pools": {},
        "defaultPool.enabled": False,
        "controller.config.retention": KEPT,
        # Load tests read each gateway's metrics through the API server, which does not forward credentials.
        "gateway.config.metricsPublic": True,
        # 64 sandboxes must fit on four cores; their requests are not what is measured.
        "sandboxes.pods.cpuShare": 0.04,
    }
    set_ = {name: json.dumps(value) for name, value in values.items()} | given
    words = [word for name, value in set_.items() for word in ("--set-json", f"{name}={value}")]
    stack.install(*words)
