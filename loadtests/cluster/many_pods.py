"""Memory of a gateway that watches 5,000 pods: a real API server, pods of kwok, one stub for all sidecars."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import psutil
from sandlot_contract.ids import InstanceId
from sandlot_contract.names import API_VERSION, POOL_KIND, SANDBOX_KIND
from sandlot_contract.new_ids import new_sandbox_id
from sandlot_contract.ports import SIDECAR_PORT
from sandlot_controller.plan.pod import pool_pod
from sandlot_gateway.sandboxes import Sandbox, Spec
from sandlot_gateway.tokens import Tokens
from sandlot_kube import paths
from sandlot_kube.client import KubeClient
from sandlot_kube.objects import SandboxPool

from loadtests.cluster import parts
from loadtests.cluster.control_plane import AT_ONCE, missing, until_running
from loadtests.cluster.simulated_cluster import ANNOTATED, simulated_cluster
from loadtests.reading import Reading

PODS = 5000
NODES = 10
# The address of each pod. kwok chooses a new address whenever it handles a pod, and under load it handles a pod
# twice: half of the pods then had addresses without a listener.
ADDRESS = "loadtests.sandlot.dev/address"


async def many_pods() -> dict[str, Reading]:
    """Measure `gateway_memory`: resident MiB with 5,000 sandboxes in as many pods."""
    if why := missing("kwok"):
        raise RuntimeError(why)
    async with simulated_cluster("kwok") as cluster:
        server, namespace = cluster.server, cluster.namespace
        empty = server.namespace("empty")
        async with parts.gateway(cluster.directory / "empty", server, empty) as gateway:
            alone = _resident(gateway.process)
        await cluster.make_nodes(NODES)
        states = await _make_objects(cluster.client, namespace)
        cluster.start_kwok(stages=ANNOTATED)
        await until_running(cluster.client, namespace)
        await cluster.stack.enter_async_context(_stub(states))
        async with parts.gateway(cluster.directory / "full", server, namespace, sandboxes=PODS) as gateway:
            full = _resident(gateway.process)
            used = parts.cpu(gateway.process)
    told = {
        "without pods": f"{alone / 2**20:.0f} MiB",
        "a sandbox": f"{(full - alone) / PODS / 1024:.1f} KiB",
        "knows all after": f"{gateway.took:.1f} s",
        "its CPU until then": f"{used:.1f} s",
    }
    return {"gateway_memory": Reading(value=full / 2**20, parts=told)}


def _resident(process: psutil.Process) -> int:
    return process.memory_info().rss


async def _make_objects(client: KubeClient, namespace: str) -> dict[str, bytes]:
    """Make pods as the controller does, with a Sandbox for each; return the stub's responses by token."""
    tokens = Tokens(parts.MASTER)
    settings = parts.controller_settings(namespace)
    crd = {"image": "python:3.12", "cpu": 1, "memory": 1 << 30, "disk": 5 << 30, "pids": 1024}
    resource = {
        "apiVersion": API_VERSION,
        "kind": POOL_KIND,
        "metadata": {"name": "kwok"},
        "spec": {"size": 0, "template": crd, "reuse": {"policy": "never"}},  # records without a generation
    }
    await client.request("POST", paths.pools(namespace), body=resource)
    pool = msgspec.convert(resource, SandboxPool)
    states: dict[str, bytes] = {}
    slots = asyncio.Semaphore(AT_ONCE)

    async def make(number: int) -> None:
        instance_id = InstanceId(f"i-{number:016x}")
        token = tokens.instance(instance_id)
        pod = pool_pod(pool, instance_id=instance_id, token=token, settings=settings)
        pod["spec"]["nodeName"] = f"kwok-{number % NODES}"
        pod["metadata"]["annotations"][ADDRESS] = _address(number)
        now = time.time()
        spec = Spec(name=f"rollout-{number}", image="python:3.12", pool="kwok")
        sandbox = Sandbox(id=new_sandbox_id(now), tenant="default", spec=spec, created_at=now, updated_at=now)
        sandbox.pool_hit = True
        record = {
            "apiVersion": API_VERSION,
            "kind": SANDBOX_KIND,
            "metadata": {"name": sandbox.id},
            "spec": {
                "template": crd,
                "podName": instance_id,
                "sandboxId": sandbox.id,
                "tenant": "default",
                "labels": [],
            },
        }
        states[token] = _state(sandbox, instance_id)
        async with slots:
            await client.request("POST", paths.pods(namespace), body=pod)
            await client.request("POST", paths.sandboxes(namespace), body=record)

    async with asyncio.TaskGroup() as group:
        for number in range(PODS):
            group.create_task(make(number))
    return states


def _state(sandbox: Sandbox, instance_id: str) -> bytes:
    """Return the state of an owned sandbox's sidecar, without an address, so that the pod's own is used."""
    state: dict[str, Any] = {
        "instance_id": instance_id,
        "address": None,
        "generation": 1,
        "phase": "claimed",
        "version": "0",
        "sandbox_id": sandbox.id,
        "claimed_at": sandbox.created_at,
        "meta": sandbox.meta(),
        "notes": [],
        "verdict": None,
        "message": None,
    }
    return json.dumps(state).encode()


@asynccontextmanager
async def _stub(states: dict[str, bytes]) -> AsyncIterator[None]:
    """Serve each sidecar's state to callers with its token, on the pods' addresses."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                lines = [line.partition(": ") for line in head.split("\r\n")]
                token = next(value for name, _, value in lines if name.lower() == "authorization")
                body = states[token.removeprefix("Bearer ")]
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    # Not on all of loopback: other programs' pods may use this machine's loopback too.
    addresses = [_address(number) for number in range(len(states))]
    server = await asyncio.start_server(answer, addresses, SIDECAR_PORT)
    try:
        yield
    finally:
        server.close()


def _address(number: int) -> str:
    return f"127.7.{number >> 8}.{number & 255}"
