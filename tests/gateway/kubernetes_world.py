"""Gateways with the Kubernetes backend in one namespace: a real API server, real pods' objects and real sidecars on loopback."""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from sandlot_gateway.app import Gateway
from sandlot_gateway.backends.kubernetes.backend import KubernetesBackend
from sandlot_gateway.backends.kubernetes.settings import KubernetesSettings, kubernetes_settings
from sandlot_gateway.ending import EndRequests
from sandlot_gateway.engine.open_creates import Part
from sandlot_gateway.serve import serve
from sandlot_gateway.settings import Settings
from sandlot_kube.client import KubeClient
from sandlot_kube.template import Template

from tests import plain_http
from tests.gateway.kubelet import Kubelet, apply_crds
from tests.kube.apiserver import ApiServer
from tests.waiting import until

NEEDS_API_SERVER = [
    pytest.mark.programs,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real sidecars make namespaces and mounts"),
]

IMAGE = "python:3.12"
TEMPLATE = Template(IMAGE, cpu=1.0, memory=256 << 20, disk=64 << 20, pids=256)
FIELDS = {
    "docker_image": IMAGE,
    "cpu_cores": 1.0,
    "memory_gb": 0.25,
    "disk_size_gb": 0.0625,
    "pids": 256,
}

REPLACED = {"reuse": {"policy": "never"}}  # of a pool whose pods end with their sandbox


class Running:
    """A gateway that serves, and a client of it. `ending` begun: it has been asked to end, as by SIGTERM."""

    def __init__(
        self,
        gateway: Gateway,
        url: str,
        client: httpx.AsyncClient,
        *,
        ending: EndRequests,
        task: asyncio.Task[int],
    ) -> None:
        self.gateway = gateway
        self.url = url
        self.client = client
        self.ending = ending
        self.task = task

    @property
    def webhook(self) -> str:
        return f"http://{self.client.base_url.host}:{self.gateway.webhook_listener.port}/internal/sidecar"

    @property
    def follows_any(self) -> bool:
        """Whether it follows a create that another gateway brings up or has begun."""
        return bool(self.gateway.lifecycle.creates.those(Part.MAY_GO_ON, Part.FOLLOWS))

    async def create(self, **fields: Any) -> httpx.Response:
        return await self.client.post("/api/v1/sandbox", json={**FIELDS, "wait_seconds": 20, **fields})

    async def made(self, **fields: Any) -> dict[str, Any]:
        made = await self.settled(await self.create(**fields))
        assert made["status"] == "RUNNING", made
        return made

    async def settled(self, answer: httpx.Response) -> dict[str, Any]:
        """The sandbox of a create's answer, once it runs or has ended: a loaded machine may need longer than a create waits."""
        assert answer.status_code == 201, answer.text
        made = answer.json()
        if made["status"] == "PENDING":
            sandbox = self.gateway.directory.get(made["id"])
            assert sandbox is not None
            await until(lambda: sandbox.status != "PENDING")
            made = await self.get(made["id"])
        return made

    async def run(self, sandbox_id: str, command: str) -> str:
        answer = await self.client.post(f"/sbx/{sandbox_id}/exec", json={"command": command, "timeout": 20})
        assert answer.status_code == 200, answer.text
        return answer.json()["stdout"]

    async def get(self, sandbox_id: str) -> dict[str, Any]:
        return (await self.client.get(f"/api/v1/sandbox/{sandbox_id}")).json()

    async def warm(self, count: int = 1) -> None:
        await until(lambda: len(self.gateway.supply.slots.warm) >= count)

    async def is_ended_somehow(self, sandbox_id: str) -> dict[str, Any]:
        """The same of one that this gateway may never have seen live."""

        async def ended() -> dict[str, Any] | None:
            answer = await self.client.get(f"/api/v1/sandbox/{sandbox_id}")
            if answer.status_code == 503:
                return None  # so new that another gateway may have made it: it is asked for again
            assert answer.status_code == 200, answer.text
            return answer.json() if answer.json()["status"] != "RUNNING" else None

        return await until(ended, pause=0.05)

    async def is_ended(self, sandbox_id: str) -> dict[str, Any]:
        await until(lambda: not self.gateway.directory.get(sandbox_id).live)  # type: ignore[union-attr]
        return await self.get(sandbox_id)


class World:
    """One namespace with its kubelet, and the gateways in front of it."""

    def __init__(self, server: ApiServer, *, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.namespace = server.namespace("gateway")
        self.key = secrets.token_bytes(32)
        (directory / "master").write_bytes(self.key)
        self.kubelet = Kubelet(server, namespace=self.namespace, key=self.key)
        self.gateway_token: str | None = None  # None: a user who may do everything
        self.kubeconfig = server.kubeconfig(directory / "kubeconfig", namespace=self.namespace)

    @asynccontextmanager
    async def gateway(
        self, name: str = "a", *, backend: dict[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[Running]:
        settings = Settings(
            **{
                "backend": "kubernetes",
                "key_file": self.directory / "master",
                "state_dir": self.directory / name,
                "port": 0,
                "webhook_port": 0,
                "api_keys": "key:alpha::operate",
                "drain": 2.0,
                "log_level": "warning",
                **options,
            }
        )
        loop = asyncio.get_running_loop()
        announced: asyncio.Future[tuple[Gateway, str]] = loop.create_future()
        ending = EndRequests()

        def make_backend(settings: Settings, tokens: Any, pool: Any) -> KubernetesBackend:
            made = replace(patient(kubernetes_settings(settings)), **(backend or {}))
            access = self.server.access(namespace=self.namespace, token=self.gateway_token)
            # None: of the environment, as the command has it.
            client = None if backend is None else KubeClient(access)
            return KubernetesBackend(tokens=tokens, pool=pool, settings=made, client=client)

        task = loop.create_task(
            serve(
                settings,
                make_backend=make_backend,
                requests=ending,
                announce=lambda gateway, url: announced.set_result((gateway, url)),
            )
        )
        await asyncio.wait([task, announced], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        gateway, url = announced.result()
        headers = {"Authorization": "Bearer key"}
        async with plain_http.async_client(base_url=url, headers=headers, timeout=60) as client:
            running = Running(gateway, url, client, ending=ending, task=task)
            if self.kubelet.webhook is None:
                self.kubelet.webhook = running.webhook
            try:
                yield running
            finally:
                await client.aclose()
                ending.begin()
                await task


def patient(settings: KubernetesSettings) -> KubernetesSettings:
    """Gateways, and deletes, wait for the others as long as a loaded machine may take, not a second or two."""
    peers = None if settings.peers is None else replace(settings.peers, timeout=20.0)
    return replace(settings, peers=peers, delete_wait=20.0)


@pytest.fixture
async def world(apiserver: ApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    await asyncio.to_thread(apply_crds, apiserver)
    with tempfile.TemporaryDirectory(prefix="kg-") as directory:
        world = World(apiserver, directory=Path(directory))
        monkeypatch.setenv("KUBECONFIG", str(world.kubeconfig))
        try:
            async with world.kubelet.at_work():
                yield world
        finally:
            if not apiserver.running:
                await asyncio.to_thread(apiserver.start)


def pool_fields() -> dict[str, Any]:
    fields = {name: value for name, value in FIELDS.items() if name != "docker_image"}
    return {"image": IMAGE, **fields}


@asynccontextmanager
async def world_of_two_users(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A world in which gateway and controller are users of their own, as on a cluster."""
    await asyncio.to_thread(apply_crds, server)
    with tempfile.TemporaryDirectory(prefix="kw-") as directory:
        world = World(server, directory=Path(directory))
        configs = {
            name: server.kubeconfig(Path(directory) / name, namespace=world.namespace, token=token)
            for name, token in server.tokens.items()
        }
        monkeypatch.setenv("KUBECONFIG", str(configs["gateway"]))
        world.gateway_token = server.tokens["gateway"]
        world.kubeconfig = configs["controller"]
        yield world
        await world.kubelet.client.close()
