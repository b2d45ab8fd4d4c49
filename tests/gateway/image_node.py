"""One node for tests: pods that lay images, and the real node agent's API over an engine that is played."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvicorn
from sandlot_contract.names import APP, COMPONENT_NODE_AGENT, LABEL_COMPONENT, LABEL_NAME
from sandlot_contract.ports import NODE_AGENT_PORT
from sandlot_gateway.uvicorn_server import Server
from sandlot_kube import paths
from sandlot_kube.client import MERGE_PATCH
from sandlot_kube.template import Template
from sandlot_node import api
from sandlot_node.images import Image, ImageId
from sandlot_node.metrics import Metrics
from sandlot_node.preparer import Preparer

from tests import plain_http
from tests.gateway.kubernetes_world import TEMPLATE, Running, World
from tests.gateway.pod_sidecar import next_address
from tests.node.agents import PlayedEngine, preparer_of
from tests.node.registries import OPEN, PRIVATE
from tests.roots import make_root
from tests.waiting import until

AGENT_TOKEN = "a token of the node agents"
OWN = f"{OPEN}/own:1"
IMAGES = [f"{OPEN}/image-{number}:1" for number in range(6)]


def template_of(image: str) -> Template:
    """The template of the tests' creates with another image."""
    return msgspec.structs.replace(TEMPLATE, image=image)


def make_image(directory: Path, name: str, image: str) -> Path:
    """Make the root of an image, with its name in /etc/which."""
    root = make_root(directory, name)
    (root / "etc/which").write_text(f"{image}\n")
    return root


class Engine(PlayedEngine):
    """Each image is a small root whose /etc/which has its name."""

    async def attach(self, image_id: ImageId) -> Image:
        image = await super().attach(image_id)
        name = image_id.replace(":", "-")
        if not (self.directory / name).exists():
            which = next(name for name, its in self.ids.items() if its == image_id)
            await asyncio.to_thread(make_image, self.directory, name, which)
        image = self.attached[image_id] = replace(image, rootfs=self.directory / name / "rootfs")
        return image


class ImageNode:
    """`agent` serves while the node does, unless a test stops it."""

    def __init__(self, world: World, name: str, *, images: Path) -> None:
        self.world = world
        self.name = name
        self.images = images
        self.engine = Engine(images)
        self.ip = next_address()
        self.requests: list[str] = []
        self.ends_of_uses = asyncio.Event()  # cleared: the agent answers no end of a use
        self.ends_of_uses.set()
        self._server: Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._preparer: Preparer | None = None

    async def pod(self, image: str = "", *, pool: str = "default", reused: bool = False) -> str:
        """A warm pod of this node. The instance id."""
        return await self.world.kubelet.pod(
            template_of(image), pool=pool, node=self.name, images=self.images, reused=reused
        )

    @property
    def preparer(self) -> Preparer:
        assert self._preparer is not None
        return self._preparer

    def uses(self) -> dict[str, set[str]]:
        """The names of the images that pods use, with these pods."""
        entries = self.preparer.ledger.entries.values()
        return {min(entry.names): set(entry.uses) for entry in entries if entry.uses}

    async def forget(self, image: str) -> None:
        """Somebody releases the image."""
        headers = {"Authorization": f"Bearer {AGENT_TOKEN}"}
        async with plain_http.async_client(
            base_url=f"http://{self.ip}:{NODE_AGENT_PORT}", headers=headers
        ) as one:
            answer = await one.delete(f"/v1/images/{self.engine.ids[image]}")
            assert answer.status_code == 204, answer.text

    async def start_agent(self) -> None:
        metrics = Metrics()
        self._preparer = preparer_of(
            self.engine, self.images.parent / "state", metrics=metrics, registries=(OPEN, PRIVATE)
        )
        await self._preparer.start()
        app = api.build(self._preparer, metrics, token=AGENT_TOKEN, housekeeping=3600)

        async def counted(scope, receive, send):
            if scope["type"] == "http":
                self.requests.append(f"{scope['method']} {scope['path']}")
                if scope["method"] == "DELETE" and "/uses/" in scope["path"]:
                    await self.ends_of_uses.wait()
            await app(scope, receive, send)

        config = uvicorn.Config(
            counted, host=self.ip, port=NODE_AGENT_PORT, log_level="error", timeout_graceful_shutdown=1
        )
        self._server = Server(config)
        self._serving = asyncio.create_task(self._server.serve())
        server = self._server
        await until(lambda: server.started)

    async def stop_agent(self) -> None:
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
        self._server = None

    async def show_agent(self) -> None:
        """Its pod's object."""
        name, client, namespace = f"agent-{self.name}", self.world.kubelet.client, self.world.namespace
        body = {
            "metadata": {"name": name, "labels": {LABEL_NAME: APP, LABEL_COMPONENT: COMPONENT_NODE_AGENT}},
            "spec": {"nodeName": self.name, "containers": [{"name": "node-agent", "image": "agent"}]},
        }
        await client.request("POST", paths.pods(namespace), body=body)
        path = f"{paths.pods(namespace, name)}/status"
        status = {"phase": "Running", "podIP": self.ip}
        await client.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH)


@asynccontextmanager
async def image_nodes(world: World, names: Iterable[str] = ("n1",)) -> AsyncIterator[list[ImageNode]]:
    """Nodes whose agents serve."""
    (world.directory / "agent-token").write_text(AGENT_TOKEN)
    directory = Path(tempfile.mkdtemp(prefix="sandlot-test-"))
    world.kubelet.pull = lambda image: make_image(Path(tempfile.mkdtemp(dir=directory)), "pulled", image)
    nodes: list[ImageNode] = []
    try:
        for name in names:
            images = directory / name / "images"
            images.mkdir(parents=True)
            (images.parent / "state").mkdir()
            nodes.append(ImageNode(world, name, images=images))
            await nodes[-1].start_agent()
            await nodes[-1].show_agent()
        yield nodes
    finally:
        for node in nodes:
            node.engine.gate.set()
            node.ends_of_uses.set()
            await node.stop_agent()
        # Its sidecars first: they have these directories below their roots.
        await asyncio.gather(*(sidecar.end() for sidecar in world.kubelet.sidecars.values()))
        world.kubelet.sidecars.clear()
        shutil.rmtree(directory)


@asynccontextmanager
async def laying_gateway(
    world: World, name: str = "a", *, port: tuple[str, int, int] | None = None, **backend: Any
) -> AsyncIterator[Running]:
    """A gateway that lays images; `backend` as in KubernetesSettings. `port`: its host, port and peer's port."""
    fixed = {"node_agent_token_file": world.directory / "agent-token", "image_list_pause": 0.2, **backend}
    keys = "key:alpha::operate,other:beta"
    options: dict[str, Any] = {"registries": [OPEN, PRIVATE], "api_keys": keys}
    if port is not None:
        host, own, its = port
        options |= {"host": host, "port": own, "peers": f"{host}:{its}"}
    async with world.gateway(name, backend=fixed, **options) as gateway:
        yield gateway


@asynccontextmanager
async def two_laying_gateways(world: World) -> AsyncIterator[tuple[Running, Running]]:
    """Two that tell each other of the pods that they reset."""
    host = next_address()
    async with (
        laying_gateway(world, "a", port=(host, 18642, 18643)) as one,
        laying_gateway(world, "b", port=(host, 18643, 18642)) as other,
    ):
        yield one, other


@pytest.fixture
async def nodes(world: World) -> AsyncIterator[list[ImageNode]]:
    async with image_nodes(world, ("n1", "n2")) as nodes:
        yield nodes


async def which(gateway: Running, made: dict[str, Any]) -> str:
    return (await gateway.run(made["id"], "cat /etc/which")).strip()


def pod_of(gateway: Running, made: dict[str, Any]) -> str:
    sandbox = gateway.gateway.directory.get(made["id"])
    assert sandbox is not None
    return str(sandbox.instance_id)


async def make_pool(world: World, **spec: Any) -> None:
    template = {"cpu": 1.0, "memory": 256 << 20, "disk": 64 << 20, "pids": 256}
    body = {
        "apiVersion": "sandlot.dev/v1alpha1",
        "kind": "SandboxPool",
        "metadata": {"name": "default"},
        "spec": {"size": 1, "template": template, **spec},
    }
    await asyncio.to_thread(world.server.call, "POST", paths.pools(world.namespace), body)
