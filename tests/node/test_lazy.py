"""The engine over a lazy snapshotter: an image is ready before its layers are pulled, and its files come when read."""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
from sandlot_node.containerd.client import Client
from sandlot_node.containerd.registry import Registry
from sandlot_node.failures import Kind
from sandlot_node.images import Auth

from tests.cluster.relay import relay
from tests.node.agents import Node, failing, ready
from tests.node.lazy_snapshotter import lazy_snapshotter, pack
from tests.node.private_containerd import (
    HANDLER,
    LAZY,
    NEEDS_CONTAINERD,
    Containerd,
    containerd,
    unmount_all,
)
from tests.node.registries import OPEN, PASSWORD, PRIVATE, USER, Layer, Registries
from tests.waiting import until

pytestmark = [
    *NEEDS_CONTAINERD,
    pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="needs /dev/fuse, by which layers are mounted"),
]
FILES = 200


def content(number: int) -> bytes:
    return random.Random(number).randbytes(64 << 10)


@asynccontextmanager
async def node_of(daemon: Containerd, directory: Path, *, handler: str | None = None) -> AsyncIterator[Node]:
    """Give a node whose agents use the lazy snapshotter of this containerd."""
    images = directory / "images"
    images.mkdir()
    client = Client(str(daemon.socket))
    found = Node(client, daemon, images=images, state=directory / "state", snapshotter=LAZY, handler=handler)
    try:
        yield found
    finally:
        await found.clear()
        await client.close()
        unmount_all(directory)


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("l")  # a socket's path has at most 107 bytes


@pytest.fixture
def socket(directory: Path, registry: Registries) -> Iterator[Path]:
    with lazy_snapshotter(directory, registries={OPEN: f"127.0.0.1:{registry.port}"}) as found:
        yield found


@pytest.fixture
async def node(directory: Path, socket: Path, registry: Registries) -> AsyncIterator[Node]:
    """A node whose containerd has the lazy snapshotter for all images."""
    with containerd(directory, certs=registry.certs, snapshotter=LAZY, local=True, proxy=socket) as daemon:
        async with node_of(daemon, directory) as found:
            yield found


@pytest.fixture
def daemon(directory: Path, socket: Path, registry: Registries) -> Iterator[Containerd]:
    """A containerd with overlayfs, and the lazy snapshotter for one runtime handler."""
    with containerd(directory, certs=registry.certs, proxy=socket) as found:
        yield found


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
    # The registry's log is a moment behind it.
    await until(lambda: registry.served("lazy") > len(layer.blob) / 2)
    await agent.delete(image.id)


async def test_a_lazy_image_outlives_the_agent(node: Node, registry: Registries) -> None:
    layer = pack(Layer(files={"name": b"kept", "more": content(1)}).archive())
    registry.push_packed("lazy-kept", [layer])
    image = await ready(await node.agent(), f"{OPEN}/lazy-kept:1")
    again = await node.agent()
    assert image.id in again.ledger.entries
    assert (await ready(again, f"{OPEN}/lazy-kept:1")).rootfs == image.rootfs
    assert (image.rootfs / "name").read_bytes() == b"kept"


async def test_a_runtime_handler_has_a_lazy_snapshotter_beside_the_nodes_own(
    daemon: Containerd, directory: Path, registry: Registries
) -> None:
    layer = pack(Layer(files={f"data-{number}": content(number) for number in range(FILES)}).archive())
    registry.push_packed("beside", [layer])
    async with node_of(daemon, directory, handler=HANDLER) as node:
        image = await ready(await node.agent(), f"{OPEN}/beside:1")
        assert (image.rootfs / "data-7").read_bytes() == content(7)
        assert registry.served("beside") < len(layer.blob) / 10

        # A pod of this image: the kubelet has the node's own snapshotter.
        lease = "of-the-kubelet"
        daemon.ctr("leases", "create", "--id", lease)
        pulled = await Registry(node.client, pull_seconds=60).pull(f"{OPEN}/beside:1", None, lease=lease)
        assert pulled == image.id
        await until(lambda: registry.served("beside") > len(layer.blob))
        mounted = directory / "mounted"
        mounted.mkdir()
        daemon.ctr("images", "mount", f"{OPEN}/beside:1", mounted)
        assert (mounted / "data-7").read_bytes() == content(7)


async def test_without_its_handler_a_snapshotter_has_no_layers(
    daemon: Containerd, directory: Path, registry: Registries
) -> None:
    registry.push_packed("no-handler", [pack(Layer(files={"name": b"name"}).archive())])
    async with node_of(daemon, directory) as node:
        error = await failing(await node.agent(), f"{OPEN}/no-handler:1")
    assert error.kind is Kind.UNSUPPORTED
    assert "SANDLOT_RUNTIME_HANDLER" in str(error)


async def test_a_layer_that_the_snapshotter_may_not_read_is_pulled_whole(
    node: Node, registry: Registries
) -> None:
    registry.push_packed("lazy-private", [pack(Layer(files={"name": b"private"}).archive())])
    agent = await node.agent()
    image = await ready(agent, f"{PRIVATE}/lazy-private:1", auth=Auth(username=USER, password=PASSWORD))
    assert (image.rootfs / "name").read_bytes() == b"private"


async def test_a_file_that_was_not_read_needs_the_registry(directory: Path, registry: Registries) -> None:
    layer = pack(Layer(files={f"data-{number}": content(number) for number in range(FILES)}).archive())
    registry.push_packed("away", [layer])
    with ExitStack() as exits:
        between = exits.enter_context(ExitStack())
        _, address = between.enter_context(relay(f"127.0.0.1:{registry.port}"))
        socket = exits.enter_context(lazy_snapshotter(directory, registries={OPEN: address}))
        daemon = exits.enter_context(containerd(directory, certs=registry.certs, proxy=socket))
        async with node_of(daemon, directory, handler=HANDLER) as node:
            image = await ready(await node.agent(), f"{OPEN}/away:1")
            assert (image.rootfs / "data-7").read_bytes() == content(7)
            between.close()
            with pytest.raises(OSError, match="Input/output error"):
                (image.rootfs / f"data-{FILES - 1}").read_bytes()
            assert (image.rootfs / "data-7").read_bytes() == content(7)
