"""Gateway and controller, both as processes of their own, over a real API server; only the kubelet is played."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sandlot_contract.names import CONTAINER_SIDECAR
from sandlot_contract.sidecar import CONFIG_VARIABLE
from sandlot_kube import paths
from sandlot_kube.client import MERGE_PATCH, KubeClient
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Pod
from sandlot_kube.reflector import Reflector
from sandlot_kube.template import Template

from tests.complaints import WARNINGS_SHOWN, assert_no_complaints
from tests.gateway.kubelet import apply_crds
from tests.gateway.kubernetes_world import IMAGE, REPLACED, World, pool_fields
from tests.gateway.pod_sidecar import Sidecar
from tests.kube.apiserver import ApiServer
from tests.waiting import until

pytestmark = [
    pytest.mark.programs,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real sidecars make namespaces and mounts"),
]


class Node:
    """Binds every pod to itself, runs its sidecar as the pod says, and tells its status."""

    def __init__(self, server: ApiServer, *, namespace: str) -> None:
        self.name = f"node-{secrets.token_hex(4)}"
        self.namespace = namespace
        self.client = KubeClient(server.access(namespace=namespace))
        self.sidecars: dict[str, Sidecar] = {}
        self.cut: set[str] = set()  # those that were deleted before their sidecar had ended
        self._seen: set[str] = set()
        self._ending: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Node]:
        await self.client.request("POST", paths.nodes(), body={"metadata": {"name": self.name}})
        ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"pods": "110"}}
        await self.client.request(
            "PATCH", f"{paths.nodes(self.name)}/status", body={"status": ready}, content_type=MERGE_PATCH
        )
        # What the API server taints a new node with goes away once it is ready, in a cluster.
        await self.client.request(
            "PATCH", paths.nodes(self.name), body={"spec": {"taints": None}}, content_type=MERGE_PATCH
        )
        reflector = Reflector(
            self.client,
            paths.pods(self.namespace),
            item=Pod,
            replaced=lambda pods: [self._changed(pod) for pod in pods] and None,
            changed=self._changed,
            deleted=lambda pod: None,
        )
        watching = asyncio.create_task(reflector.run())
        try:
            yield self
        finally:
            watching.cancel()
            self._ending |= self._seen
            await asyncio.gather(*(sidecar.end() for sidecar in self.sidecars.values()))
            await asyncio.gather(watching, *self._tasks, return_exceptions=True)
            await self.client.request("DELETE", paths.nodes(self.name))
            await self.client.close()

    def _changed(self, pod: Pod) -> None:
        name = pod.metadata.name
        if pod.metadata.deletion_timestamp is not None:
            if name not in self._ending:
                self._ending.add(name)
                self._own(self._end(name))
        elif name not in self._seen:
            self._seen.add(name)
            self._own(self._run(name))

    def _own(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, name: str) -> None:
        path = paths.pods(self.namespace, name)
        target = {"apiVersion": "v1", "kind": "Node", "name": self.name}
        await self.client.request(
            "POST", f"{path}/binding", body={"metadata": {"name": name}, "target": target}
        )
        pod = json.loads(await self.client.request("GET", path))
        [env] = [
            {item["name"]: item.get("value") for item in container["env"]}
            for container in pod["spec"]["containers"]
            if container["name"] == CONTAINER_SIDECAR
        ]
        if name in self._ending:
            return  # a process that is started now has nobody who ends it
        config = json.loads(env[CONFIG_VARIABLE])
        sidecar = Sidecar(
            instance_id=name, token=config["token"], template=Template(IMAGE), webhook=config["webhook"]
        )
        # All as the pod says, but for what this machine lends: an address, a directory, a root.
        lent = {name: sidecar.config[name] for name in ("listen", "state_dir", "root")}
        sidecar.config = {**config, **lent, "target": False}
        self.sidecars[name] = sidecar
        await sidecar.start()
        await self._status(name, sidecar, {"running": {}})
        code = await sidecar.wait()
        if name not in self._ending:
            await self._status(name, sidecar, {"terminated": {"exitCode": code, "reason": "Completed"}})

    async def _status(self, name: str, sidecar: Sidecar, state: dict[str, Any]) -> None:
        common = {"image": "x", "imageID": "x", "ready": True, "restartCount": 0}
        statuses = [
            {"name": "sandbox", **common, "state": {"running": {}}},
            {"name": "sidecar", **common, "state": state},
        ]
        status = {"phase": "Running", "podIP": sidecar.ip, "containerStatuses": statuses}
        status["conditions"] = [{"type": "Ready", "status": "True"}]
        await self.client.request(
            "PATCH",
            f"{paths.pods(self.namespace, name)}/status",
            body={"status": status},
            content_type=MERGE_PATCH,
        )

    async def _end(self, name: str) -> None:
        sidecar = self.sidecars.pop(name, None)
        if sidecar is not None:
            if sidecar.runs:
                self.cut.add(name)
            await sidecar.end()
        try:
            await self.client.request(
                "DELETE", paths.pods(self.namespace, name), params={"gracePeriodSeconds": "0"}
            )
        except KubeError as error:
            if error.status != 404:
                raise


@asynccontextmanager
async def controller(
    world: World, *, webhook: str, retention: float = 600.0, status_interval: float = 5.0
) -> AsyncIterator[asyncio.subprocess.Process]:
    log = world.directory / "controller.log"
    env = {
        "PATH": os.environ["PATH"],
        **WARNINGS_SHOWN,
        "HOME": str(world.directory),
        "KUBECONFIG": str(world.kubeconfig),
        "SANDLOT_NAMESPACE": world.namespace,
        "SANDLOT_LEASE_NAMESPACE": world.namespace,
        "SANDLOT_KEY_FILE": str(world.directory / "master"),
        "SANDLOT_WEBHOOK_URL": webhook,
        "SANDLOT_SIDECAR_IMAGE": "sidecar",
        "SANDLOT_HEALTH_PORT": "0",
        "SANDLOT_HEARTBEAT": "1",
        "SANDLOT_RETENTION": str(retention),
        "SANDLOT_STATUS_INTERVAL": str(status_interval),
    }
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sandlot_controller", env=env, stdout=file, stderr=file
        )
    try:
        yield process
    except BaseException:
        sys.stderr.write(log.read_text()[-6000:])
        raise
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
    assert_no_complaints(log.read_text())


@pytest.fixture
async def world(apiserver: ApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    await asyncio.to_thread(apply_crds, apiserver)
    with tempfile.TemporaryDirectory(prefix="kc-") as directory:
        world = World(apiserver, directory=Path(directory))
        monkeypatch.setenv("KUBECONFIG", str(world.kubeconfig))
        yield world
        await world.kubelet.client.close()


async def test_pool_claim_refill_cold_start_and_ends(world: World) -> None:
    def resources() -> dict[str, Any]:
        items = world.server.call("GET", paths.sandboxes(world.namespace))["items"]
        return {item["metadata"]["name"]: item for item in items}

    node = Node(world.server, namespace=world.namespace)
    async with (
        node.running(),
        world.gateway() as gateway,
        controller(world, webhook=gateway.webhook),
    ):
        await gateway.client.put("/api/v1/pools/default", json={**pool_fields(), **REPLACED, "size": 2})
        await gateway.warm(2)
        made = await gateway.made(labels=["one"])
        assert made["poolHit"] is True
        assert await gateway.run(made["id"], "echo warm") == "warm\n"
        # Its record tells the controller to make another one.
        await gateway.warm(2)
        assert resources()[made["id"]]["spec"]["labels"] == ["one"]

        cold = await gateway.made(cpu_cores=0.5)
        assert cold["poolHit"] is False
        assert await gateway.run(cold["id"], "echo cold") == "cold\n"

        pods = {made["id"]: gateway.gateway.directory.get(made["id"]).instance_id}
        pods[cold["id"]] = gateway.gateway.directory.get(cold["id"]).instance_id
        for sandbox_id, pod in pods.items():
            await gateway.client.delete(f"/api/v1/sandbox/{sandbox_id}")
            await until(lambda pod=pod: pod not in node.sidecars)
        ended = {name: item["status"] for name, item in resources().items()}
        assert {status["verdict"] for status in ended.values()} == {"deleted"}
        assert set(ended) == {made["id"], pods[cold["id"]]}
        assert len(gateway.gateway.supply.slots.warm) == 2

        lost = await gateway.made()
        instance = gateway.gateway.directory.get(lost["id"]).instance_id
        await world.kubelet.client.request("DELETE", paths.pods(world.namespace, instance))
        told = await gateway.is_ended(lost["id"])
        assert told["status"] == "ERROR"
        await gateway.warm(2)
        assert (await gateway.client.delete("/api/v1/pools/default")).status_code == 200
        await until(lambda: not node.sidecars)


async def test_a_pod_is_deleted_after_its_sandboxs_start_command_has_stopped(world: World) -> None:
    stops = {
        "start_command": "trap 'sleep 3; exit' TERM; while :; do sleep 0.05; done",
        "stop_grace_seconds": 5,
    }
    node = Node(world.server, namespace=world.namespace)
    async with (
        node.running(),
        world.gateway() as gateway,
        controller(world, webhook=gateway.webhook),
    ):
        await gateway.client.put("/api/v1/pools/default", json={**pool_fields(), **REPLACED, "size": 1})
        await gateway.warm(1)
        warm, cold = await gateway.made(**stops), await gateway.made(cpu_cores=0.5, **stops)
        assert (warm["poolHit"], cold["poolHit"]) == (True, False)
        for one in (warm, cold):
            pod = gateway.gateway.directory.get(one["id"]).instance_id
            # The command has set its trap once it has a child.
            await gateway.run(one["id"], "until pgrep -x sleep; do sleep 0.05; done")
            await gateway.client.delete(f"/api/v1/sandbox/{one['id']}")
            await until(lambda pod=pod: pod not in node.sidecars)
    assert node.cut == set()


async def test_every_create_from_a_full_pool_hits_it_through_either_gateway(world: World) -> None:
    """More creates than the pool holds, and more pods than a node may start at once: none is left to a cold start."""
    node = Node(world.server, namespace=world.namespace)
    async with (
        node.running(),
        world.gateway("a") as first,
        world.gateway("b") as second,
        controller(world, webhook=first.webhook),
    ):
        await first.client.put("/api/v1/pools/default", json={**pool_fields(), **REPLACED, "size": 5})
        for number in range(7):
            for gateway in (first, second):
                await until(lambda gateway=gateway: gateway.gateway.supply.slots.warm.count("default") == 5)
            made = await (first, second)[number % 2].made()
            assert (made["poolHit"], made["coldReason"]) == (True, None), number
