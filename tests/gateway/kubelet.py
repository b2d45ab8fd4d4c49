"""Plays controller and kubelet for one namespace: the pods are real objects, their sidecars real processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import yaml
from sandlot_contract.ids import InstanceId
from sandlot_contract.names import (
    ANNOTATION_LAYS_IMAGES,
    ANNOTATION_REUSE,
    ANNOTATION_TEMPLATE,
    APP,
    COMPONENT_SANDBOX,
    LABEL_COMPONENT,
    LABEL_FOR,
    LABEL_INSTANCE,
    LABEL_KEY,
    LABEL_NAME,
    LABEL_POOL,
    LABEL_TEMPLATE,
)
from sandlot_gateway.tokens import Tokens
from sandlot_kube import paths
from sandlot_kube.client import MERGE_PATCH, KubeClient
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Sandbox
from sandlot_kube.reflector import Reflector
from sandlot_kube.template import Template, encode, key

from tests.gateway.pod_sidecar import Sidecar
from tests.gateway.sidecars import new_instance_id
from tests.kube.apiserver import ApiServer
from tests.waiting import SECONDS

CRDS = Path(__file__).parents[2] / "charts" / "sandlot" / "crds"


def apply_crds(server: ApiServer) -> None:
    for path in sorted(CRDS.glob("*.yaml")):
        server.apply_crd(yaml.safe_load(path.read_text()))


class Kubelet:
    def __init__(self, server: ApiServer, *, namespace: str, key: bytes) -> None:
        self.server = server
        self.namespace = namespace
        self.webhook: str | None = None
        self.client = KubeClient(server.access(namespace=namespace))
        self.sidecars: dict[str, Sidecar] = {}
        self.sandboxes: dict[str, Sandbox] = {}
        self.make_cold = True
        # Returns the root of an image, for cold pods; None: they have the machine's.
        self.pull: Callable[[str], Path] | None = None
        self.controls = True  # pods go when their Sandbox has ended, unless they are reused, or is deleted
        self._tokens = Tokens(key)
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._cold: dict[str, asyncio.Task[Any]] = {}  # pods of cold Sandboxes, which are on their way

    def use_key(self, key: bytes) -> None:
        """The master key of pods from now on."""
        self._tokens = Tokens(key)

    # Pods.

    async def sidecar(
        self,
        template: Template,
        *,
        instance_id: str | None = None,
        images: Path | None = None,
        lower: Path = Path("/"),
    ) -> Sidecar:
        """The process alone, without a pod."""
        instance_id = instance_id or new_instance_id()
        sidecar = Sidecar(
            instance_id=instance_id,
            token=self._tokens.instance(InstanceId(instance_id)),
            template=template,
            webhook=self.webhook,
            images=images,
            lower=lower,
        )
        self.sidecars[instance_id] = sidecar
        await sidecar.start()
        return sidecar

    async def pod(
        self,
        template: Template,
        *,
        pool: str | None = None,
        cold: str | None = None,
        node: str | None = None,
        images: Path | None = None,
        reused: bool = False,
    ) -> str:
        """A pod that runs: its object first, then its process and address. The instance id.

        `images`: where its sidecar lays images from.
        """
        annotations = {ANNOTATION_LAYS_IMAGES: "true"} if images is not None else {}
        if reused:
            annotations[ANNOTATION_REUSE] = "tenant"
        instance_id = await self.pod_object(
            template, pool=pool, cold=cold, node=node, annotations=annotations
        )
        lower = Path("/")
        if cold is not None and self.pull is not None:
            lower = await asyncio.to_thread(self.pull, template.image)
        sidecar = await self.sidecar(template, instance_id=instance_id, images=images, lower=lower)
        await self.set_status(instance_id, phase="Running", podIP=sidecar.ip)
        return instance_id

    async def pod_object(
        self,
        template: Template,
        *,
        pool: str | None = None,
        cold: str | None = None,
        node: str | None = None,
        annotations: dict[str, str] | None = None,
    ) -> str:
        """A pod that has no process. The instance id."""
        instance_id = cold or new_instance_id()
        labels = {
            LABEL_NAME: APP,
            LABEL_COMPONENT: COMPONENT_SANDBOX,
            LABEL_INSTANCE: instance_id,
            LABEL_TEMPLATE: key(template),
            LABEL_KEY: self._tokens.signing_id,
        }
        if pool is not None:
            labels[LABEL_POOL] = pool
        if cold is not None:
            labels[LABEL_FOR] = cold
        body = {
            "metadata": {
                "name": instance_id,
                "labels": labels,
                "annotations": {ANNOTATION_TEMPLATE: encode(template), **(annotations or {})},
            },
            "spec": {
                **({"nodeName": node} if node is not None else {}),
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {"name": "sandbox", "image": template.image or "sidecar"},
                    {"name": "sidecar", "image": "sidecar"},
                ],
            },
        }
        await self.client.request("POST", paths.pods(self.namespace), body=body)
        return instance_id

    async def set_status(self, instance_id: str, **status: Any) -> None:
        path = f"{paths.pods(self.namespace, instance_id)}/status"
        await self.client.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH)

    async def delete_pod(self, instance_id: str) -> None:
        if (starting := self._cold.get(instance_id)) is not None:
            # What is deleted before it is there would stay.
            await asyncio.wait([starting])
        try:
            await self.client.request(
                "DELETE", paths.pods(self.namespace, instance_id), params={"gracePeriodSeconds": "0"}
            )
        except KubeError as error:
            if error.status != 404:
                raise
        sidecar = self.sidecars.pop(instance_id, None)
        if sidecar is not None:
            await sidecar.end()

    # Sandboxes.

    async def set_sandbox_status(self, name: str, **status: Any) -> None:
        path = f"{paths.sandboxes(self.namespace, name)}/status"
        await self.client.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH)

    async def until(self, condition: Callable[[], Any], *, timeout: float = SECONDS) -> Any:
        """The first true answer; looked at again after every change of a Sandbox. A KeyError is of one not told of yet."""
        async with asyncio.timeout(timeout):
            while True:
                with suppress(KeyError):
                    if value := condition():
                        return value
                self._news.clear()
                await self._news.wait()

    async def record(self, name: str) -> Sandbox:
        """As the API server has it now: what the watch has told of may be older."""
        answer = await self.client.request("GET", paths.sandboxes(self.namespace, name))
        return msgspec.json.decode(answer, type=Sandbox)

    def of_pod(self, instance_id: str) -> Sandbox | None:
        """The Sandbox that is about this pod."""
        return next(
            (
                sandbox
                for name, sandbox in self.sandboxes.items()
                if (sandbox.spec.pod_name or name) == instance_id
            ),
            None,
        )

    # The controller's side.

    def _replaced(self, sandboxes: list[Sandbox]) -> None:
        self.sandboxes = {}
        for sandbox in sandboxes:
            self._changed(sandbox)
        self._news.set()

    def _changed(self, sandbox: Sandbox) -> None:
        name = sandbox.metadata.name
        before = self.sandboxes.get(name)
        self.sandboxes[name] = sandbox
        self._news.set()
        if sandbox.spec.waits:
            return
        pod = sandbox.spec.pod_name or name
        if sandbox.status.phase == "Ended" and (
            before is None or before.spec.waits or before.status.phase != "Ended"
        ):
            if self.controls and sandbox.spec.generation is None:
                self._own(self.delete_pod(pod))
        elif sandbox.spec.pod_name is None and before is None and self.make_cold:
            self._make_cold(sandbox)

    def makes_cold(self) -> None:
        """From now on it makes pods of cold Sandboxes, also of those that came while it did not."""
        self.make_cold = True
        for sandbox in self.sandboxes.values():
            wanted = sandbox.spec.pod_name is None and not sandbox.spec.waits
            if wanted and sandbox.status.phase != "Ended":
                self._make_cold(sandbox)

    def _make_cold(self, sandbox: Sandbox) -> None:
        name = sandbox.metadata.name
        self._cold[name] = self._own(self.pod(sandbox.spec.template, cold=name))
        self._cold[name].add_done_callback(lambda _: self._cold.pop(name))

    def _deleted(self, sandbox: Sandbox) -> None:
        self.sandboxes.pop(sandbox.metadata.name, None)
        self._news.set()
        if self.controls:
            self._own(self.delete_pod(sandbox.spec.pod_name or sandbox.metadata.name))

    def _own(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[Kubelet]:
        """Pods for cold Sandboxes, no pods for ended ones; nothing is left of any at the end."""
        reflector = Reflector(
            self.client,
            paths.sandboxes(self.namespace),
            item=Sandbox,
            replaced=self._replaced,
            changed=self._changed,
            deleted=self._deleted,
            longest_wait=0.5,
        )
        watching = asyncio.create_task(reflector.run())
        try:
            await reflector.synced.wait()
            yield self
        finally:
            watching.cancel()
            await asyncio.gather(watching, *self._tasks, return_exceptions=True)
            await asyncio.gather(*(sidecar.end() for sidecar in self.sidecars.values()))
            await self.client.close()
