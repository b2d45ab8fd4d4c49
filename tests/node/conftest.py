"""Registries and a containerd for the tests of the node agent's engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sandlot_node.containerd.client import Client

from tests.node.agents import Node, PlayedEngine
from tests.node.private_containerd import Containerd, containerd, unmount_all
from tests.node.registries import Registries, registries


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registries]:
    with registries(tmp_path_factory.mktemp("registries")) as found:
        yield found


@pytest.fixture(scope="session", params=["transfer", "local"])
def daemon(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, registry: Registries
) -> Iterator[Containerd]:
    """containerd, which pulls by its transfer service, or by itself as kind and older versions configure it."""
    # A socket's path has at most 107 bytes.
    directory = tmp_path_factory.mktemp("c")
    with containerd(directory, certs=registry.certs, local=request.param == "local") as found:
        yield found


@pytest.fixture
async def node(daemon: Containerd, tmp_path: Path) -> AsyncIterator[Node]:
    """The node agent's parts on that containerd, without its HTTP API."""
    images = tmp_path / "images"
    images.mkdir()
    client = Client(str(daemon.socket))
    node = Node(client, daemon, images=images, state=tmp_path / "state")
    try:
        yield node
    finally:
        await node.clear()
        await client.close()
        unmount_all(tmp_path)


@pytest.fixture
def engine(tmp_path: Path) -> PlayedEngine:
    return PlayedEngine(tmp_path)
