"""The engine over a lazy snapshotter: an image is ready before its layers are pulled, and its files come when read."""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sandlot_node.containerd.client import Client

from tests.node.agents import Node, ready
from tests.node.lazy_snapshotter import lazy_snapshotter, pack
from tests.node.private_containerd import NEEDS_CONTAINERD, containerd, unmount_all
from tests.node.registries import OPEN, Layer, Registries

pytestmark = [
    *NEEDS_CONTAINERD,
    pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="needs /dev/fuse, by which layers are mounted"),
]
FILES = 200


def content(number: int) -> bytes:
    return random.Random(number).randbytes(64 << 10)


@pytest.fixture
async def node(registry: Registries, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Node]:
    directory = tmp_path_factory.mktemp("l")
    images = directory / "images"
    images.mkdir()
    with (
        lazy_snapshotter(directory, registries={OPEN: f"127.0.0.1:{registry.port}"}) as socket,
        containerd(directory, certs=registry.certs, snapshotter="stargz", local=True, proxy=socket) as daemon,
    ):
        client = Client(str(daemon.socket))
        found = Node(client, daemon, images=images, state=directory / "state", snapshotter="stargz")
        try:
            yield found
        finally:
            await found.clear()
            await client.close()
            unmount_all(directory)


async def test_an_image_is_ready_before_its_layers_are_pulled(node: Node, registry: Registries) -> None:
    files = {f"data/{number:03}": content(number) for number in range(FILES)}
    base = pack(Layer(files={"base": b"of the layer below"}).archive())
    layer = pack(Layer(files={"data": None, **files}).archive())
    registry.push_packed("lazy", [base, layer])
    agent = await node.agent()
    image = await ready(agent, f"{OPEN}/lazy:1")
    assert registry.served("lazy") < len(layer.blob) / 10, "its layers were pulled whole"

    assert sorted(path.name for path in (image.rootfs / "data").iterdir()) == [name[5:] for name in files]
    one = (image.rootfs / "data/100").read_bytes()
    assert one == content(100)
    assert (image.rootfs / "base").read_bytes() == b"of the layer below"
    first_use = registry.served("lazy")
    assert first_use < len(layer.blob) / 10, "more was pulled than what was read"

    for number in range(FILES):
        found = (image.rootfs / f"data/{number:03}").read_bytes()
        assert hashlib.sha256(found).digest() == hashlib.sha256(content(number)).digest()
    assert registry.served("lazy") > len(layer.blob) / 2
    await agent.delete(image.id)


async def test_a_lazy_image_outlives_the_agent(node: Node, registry: Registries) -> None:
    layer = pack(Layer(files={"name": b"kept", "more": content(1)}).archive())
    registry.push_packed("lazy-kept", [layer])
    image = await ready(await node.agent(), f"{OPEN}/lazy-kept:1")
    again = await node.agent()
    assert image.id in again.ledger.entries
    assert (await ready(again, f"{OPEN}/lazy-kept:1")).rootfs == image.rootfs
    assert (image.rootfs / "name").read_bytes() == b"kept"
