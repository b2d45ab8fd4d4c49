"""The controller's writes to the API server, one request each; a repeated write is no error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from sandlot_contract import names
from sandlot_kube import ends, paths
from sandlot_kube.client import MERGE_PATCH, KubeClient
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Metadata, Pod, Sandbox, SandboxPool
from sandlot_kube.warmups import ImageWarmup

from ..metrics import Metrics
from ..world.nodes import Node

# Seconds for a pod whose sidecar has ended, or is waited for no longer. Its own would be spent in full, since the first
# process of the sandbox's container heeds no SIGTERM, and its node would have no room for another pod until then.
_POD_GRACE = 1


class _Pods(msgspec.Struct):
    items: list[Pod] = []


class _Resource(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Resource] = []


class _Item(msgspec.Struct):
    metadata: Metadata


class _Items(msgspec.Struct):
    items: list[_Item] = []


class Api:
    """Sends writes, and asks for what a watch may be late to show; every method but `now` may raise KubeError."""

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        metrics: Metrics,
        now: Callable[[], float] | None = None,
    ) -> None:
        """`now`: Unix seconds by the API server's clock; None: as the client knows it."""
        self.now = now or client.now
        self._client = client
        self._underway: set[asyncio.Task[bytes]] = set()
        self.namespace = namespace
        self._metrics = metrics

    async def settle(self, *, seconds: float) -> None:
        """Wait for the answers to writes whose callers were cancelled: the API server may carry them out all the same."""
        if self._underway:
            await asyncio.wait(self._underway, timeout=seconds)
        for request in self._underway:
            request.cancel()
        await asyncio.gather(*self._underway, return_exceptions=True)

    async def create_pod(self, pod: dict[str, Any], *, kind: str) -> None:
        """Create a pod; one of that name that exists already, from an earlier request, is no error."""
        try:
            await self._write("POST", paths.pods(self.namespace), pod)
        except KubeError as error:
            if error.reason != "AlreadyExists":
                raise
            return
        self._metrics.pods_created.labels(kind).inc()

    async def has_pod(self, name: str) -> bool:
        """Return whether the pod exists, whatever the watch has shown."""
        try:
            await self._client.request("GET", paths.pods(self.namespace, name))
        except KubeError as error:
            if error.status != 404:
                raise
            return False
        return True

    async def node(self, name: str) -> Node | None:
        """Return a node, whatever the watch has shown; None: there is none."""
        try:
            found = await self._client.request("GET", paths.nodes(name))
        except KubeError as error:
            if error.status != 404:
                raise
            return None
        return msgspec.json.decode(found, type=Node)

    async def delete_pod(self, pod: Pod, *, force: bool = False, unchanged: bool = False) -> bool:
        """Delete a pod; return False if it stays because it has changed.

        `force`: without waiting for its node. `unchanged`: only if nothing, such as the scheduler, has changed it.
        """
        preconditions = {"uid": pod.metadata.uid}
        if unchanged:
            preconditions["resourceVersion"] = pod.metadata.resource_version
        body = {"preconditions": preconditions, "gracePeriodSeconds": 0 if force else _POD_GRACE}
        try:
            await self._write("DELETE", paths.pods(self.namespace, pod.metadata.name), body)
        except KubeError as error:
            if error.status == 409 and unchanged:
                return False
            if error.status not in (404, 409):
                raise
        return True

    async def delete_pods(self, instances: list[str]) -> None:
        """Delete pods by one request; those that are gone are no error."""
        selector = f"{names.LABEL_INSTANCE} in ({','.join(instances)})"
        await self._write(
            "DELETE",
            paths.pods(self.namespace),
            {"gracePeriodSeconds": _POD_GRACE},
            params={"labelSelector": selector},
        )

    async def patch_sandbox_status(
        self, sandbox: Sandbox, patch: dict[str, Any], *, unchanged: bool = False
    ) -> None:
        """Patch a Sandbox's status. `unchanged`: only if the resource has not changed since."""
        path = paths.sandboxes(self.namespace, sandbox.metadata.name)
        try:
            await self._patch(path, sandbox, patch, unchanged=unchanged)
        except KubeError as error:
            if not ends.was_first(error):
                raise

    async def patch_pool_status(self, pool: SandboxPool, patch: dict[str, Any]) -> None:
        await self._patch(paths.pools(self.namespace, pool.metadata.name), pool, patch)

    async def node_agents(self) -> dict[str, str]:
        """Return the addresses of the ready node agents, by node."""
        found = await self._client.request(
            "GET",
            paths.pods(self.namespace),
            params={"labelSelector": names.NODE_AGENT_PODS},
        )
        addresses: dict[str, str] = {}
        for pod in msgspec.json.decode(found, type=_Pods).items:
            ready = pod.condition("Ready")
            is_ready = (
                ready is not None and ready.status == "True" and pod.metadata.deletion_timestamp is None
            )
            if is_ready and pod.spec.node_name and pod.status.pod_ip:
                addresses[pod.spec.node_name] = pod.status.pod_ip
        return addresses

    async def warmup_uids(self) -> set[str]:
        """Return the uids of the warm-ups that exist, whatever the watch has shown."""
        found = await self._client.request("GET", paths.warmups(self.namespace))
        return {one.metadata.uid for one in msgspec.json.decode(found, type=_Items).items}

    async def served(self, collections: set[str]) -> set[str]:
        """Return those of these collections of our resources whose definitions are installed."""
        try:
            found = await self._client.request("GET", paths.group())
        except KubeError as error:
            if error.status != 404:
                raise
            return set()
        plurals = {one.name for one in msgspec.json.decode(found, type=_Resources).resources}
        return {path for path in collections if path.rpartition("/")[2] in plurals}

    async def patch_warmup_status(self, warmup: ImageWarmup, patch: dict[str, Any]) -> None:
        await self._patch(paths.warmups(self.namespace, warmup.metadata.name), warmup, patch)

    async def delete_warmup(self, warmup: ImageWarmup) -> None:
        await self._delete(paths.warmups(self.namespace, warmup.metadata.name), uid=warmup.metadata.uid)

    async def delete_sandbox(self, sandbox: Sandbox) -> None:
        await self._delete(paths.sandboxes(self.namespace, sandbox.metadata.name), uid=sandbox.metadata.uid)

    async def delete_period(self, ended_in: str) -> None:
        """Delete all Sandboxes that ended in this minute."""
        await self._write(
            "DELETE", paths.sandboxes(self.namespace), params={"fieldSelector": f"status.endedIn={ended_in}"}
        )

    async def _delete(self, path: str, *, uid: str) -> None:
        try:
            await self._write("DELETE", path, {"preconditions": {"uid": uid}})
        except KubeError as error:
            if error.status not in (404, 409):
                raise

    async def _patch(
        self,
        path: str,
        resource: Sandbox | SandboxPool | ImageWarmup,
        patch: dict[str, Any],
        *,
        unchanged: bool = False,
    ) -> None:
        # With a uid, the API server rejects the patch for a replacement of the same name.
        metadata = {"uid": resource.metadata.uid}
        if unchanged:
            metadata["resourceVersion"] = resource.metadata.resource_version
        body = {"metadata": metadata, **patch}
        try:
            await self._write("PATCH", f"{path}/status", body, content_type=MERGE_PATCH)
        except KubeError as error:
            if error.status not in (404, 409):
                raise

    async def _write(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        params: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> None:
        request = asyncio.create_task(
            self._client.request(method, path, params=params, body=body, content_type=content_type)
        )
        self._underway.add(request)
        request.add_done_callback(self._answered)
        try:
            await asyncio.shield(request)
        except KubeError as error:
            self._metrics.write_failed(method, error)
            raise

    def _answered(self, request: asyncio.Task[bytes]) -> None:
        self._underway.discard(request)
        if not request.cancelled():
            request.exception()  # its caller may be gone, and asyncio would complain


def refused(error: KubeError) -> bool:
    """Return whether the API server would reject the same request every time."""
    return 400 <= error.status < 500 and error.status not in (401, 408, 409, 429)
