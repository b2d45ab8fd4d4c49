"""One gateway over stub slots that are always warm: pods of a real API server, without nodes, and one stub as their sidecars."""

from __future__ import annotations

import asyncio
import hmac
import json
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from sandlot_contract.headers import INSTANCE, SENDER, SIGNATURE
from sandlot_contract.ids import InstanceId
from sandlot_contract.names import API_VERSION, POOL_KIND
from sandlot_contract.sidecar import WEBHOOK_PATH, WEBHOOK_SENDER, WEBHOOK_SIGNATURE
from sandlot_controller.plan.pod import pool_pod
from sandlot_gateway.tokens import Tokens
from sandlot_kube import paths
from sandlot_kube.client import MERGE_PATCH, KubeClient
from sandlot_kube.objects import SandboxPool
from sandlot_kube.template import key

from loadtests.cluster import parts
from loadtests.cluster.control_plane import AT_ONCE, api_server
from loadtests.cluster.stub_pods import StubPods
from tests import plain_http
from tests.ports import free_port

_WARM = 600.0  # seconds to learn 10,000 slots, beside the API server on the same cores


@dataclass(frozen=True, slots=True)
class StubPool:
    name: str
    image: str
    slots: int

    def document(self) -> dict[str, Any]:
        """Return the resource, as the controller reads it."""
        template = {"image": self.image, "cpu": 1, "memory": 1 << 30, "disk": 5 << 30, "pids": 1024}
        reuse = {"policy": "tenant", "maxUses": 1_000_000}
        return {
            "apiVersion": API_VERSION,
            "kind": POOL_KIND,
            "metadata": {"name": self.name},
            "spec": {"size": 0, "template": template, "reuse": reuse},
        }


@dataclass(frozen=True, slots=True)
class StubSlots:
    """The gateway that knows the slots, and what stands for controller, kubelet and sidecars."""

    gateway: parts.Part
    stub: StubPods
    webhook_port: int

    async def end(self, sandbox_id: str, *, verdict: str, message: str) -> None:
        """End a sandbox as its sidecar does, which tells the gateway why. Raises KeyError if it has ended."""
        pod = InstanceId(self.stub.pod_of(sandbox_id))
        body = json.dumps(
            {"event": "ended", **self.stub.ended(pod, verdict=verdict), "message": message}
        ).encode()
        token = Tokens(parts.MASTER).instance(pod).encode()
        headers = {
            INSTANCE: pod,
            SENDER: hmac.digest(token, WEBHOOK_SENDER, "sha256").hex(),
            SIGNATURE: WEBHOOK_SIGNATURE + hmac.digest(token, body, "sha256").hex(),
        }
        async with plain_http.async_client() as client:
            url = f"http://127.0.0.1:{self.webhook_port}{WEBHOOK_PATH}"
            answer = await client.post(url, content=body, headers=headers)
        answer.raise_for_status()


@asynccontextmanager
async def gateway_over(pools: Sequence[StubPool], *, options: Sequence[str] = ()) -> AsyncIterator[StubSlots]:
    """Run a gateway until it knows all slots as warm; in a network of its own, where each slot has an address.

    `options`: further ones of the gateway's command line.
    """
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sandlot-slot-")))
        server = stack.enter_context(api_server(directory))
        client = KubeClient(server.access(), patience=60.0)  # its API server has the machine with the load
        stack.push_async_callback(client.close)
        namespace = server.namespace("slots")
        stub = StubPods(master=parts.MASTER)
        await stack.enter_async_context(stub.listening())
        await _make_pods(client, namespace, stub, pools=pools)
        port = free_port()
        options = ("--webhook-port", str(port), *options)
        gateway = await stack.enter_async_context(
            parts.gateway(directory / "gateway", server, namespace, options=options)
        )
        wanted = sum(pool.slots for pool in pools)

        async def warm() -> bool:
            return await gateway.number("sandlot_ready_instances") >= wanted

        try:
            async with asyncio.timeout(_WARM):
                await parts.until(warm)
        except TimeoutError as error:
            raise RuntimeError(f"the gateway did not know {wanted} slots as warm in {_WARM:g} s") from error
        yield StubSlots(gateway, stub, port)


async def _make_pods(
    client: KubeClient, namespace: str, stub: StubPods, *, pools: Sequence[StubPool]
) -> None:
    """Create the pools and their pods as the controller does, with the status of pods that run."""
    tokens = Tokens(parts.MASTER)
    settings = parts.controller_settings(namespace)
    gate = asyncio.Semaphore(AT_ONCE)

    async def make(pool: SandboxPool, number: int) -> None:
        async with gate:
            instance_id = InstanceId(f"i-{number:016x}")
            stub.know(instance_id, template=key(pool.spec.template))
            token = tokens.instance(instance_id)
            pod = pool_pod(pool, instance_id=instance_id, token=token, settings=settings)
            pod["spec"]["nodeName"] = "node"
            address = f"127.7.{number >> 8}.{number & 255}"
            status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
            where = f"{paths.pods(namespace, instance_id)}/status"
            await client.request("POST", paths.pods(namespace), body=pod)
            await client.request("PATCH", where, body={"status": status}, content_type=MERGE_PATCH)

    number = 0
    async with asyncio.TaskGroup() as group:
        for pool in pools:
            document = pool.document()
            await client.request("POST", paths.pools(namespace), body=document)
            made = msgspec.convert(document, SandboxPool)
            for _ in range(pool.slots):
                group.create_task(make(made, number))
                number += 1
