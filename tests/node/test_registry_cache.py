"""Nodes that pull through a cache of a registry: what the registry still serves, and what happens without the cache."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.relay import Relay, relay
from tests.node.private_containerd import NEEDS_CONTAINERD
from tests.node.registries import PASSWORD, USER, Layer, Registries, TestImage
from tests.node.registry_cache import MirroredNode, RegistryCache, cached, nodes
from tests.waiting import wait_until

pytestmark = NEEDS_CONTAINERD

HOST = "slow.example"
SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class Site:
    """Two nodes, a cache, and a registry whose bytes are counted."""

    registry: Registries
    upstream: Relay
    cache: RegistryCache
    nodes: list[MirroredNode]

    def push(self, name: str) -> str:
        self.registry.push(name, TestImage(layers=[Layer(files={"data": os.urandom(SIZE)})]))
        return f"{HOST}/{name}:1"

    def prepare(self, node: int, image: str) -> int:
        """Prepare it on a node; return how many bytes the registry sent for it."""
        before = self.upstream.sent
        answer = self.nodes[node].agent.prepare(image)
        assert answer.status_code == 200, answer.text
        assert (Path(answer.json()["rootfs"]) / "data").stat().st_size == SIZE
        return self.upstream.sent - before


@contextmanager
def site(directory: Path, registry: Registries) -> Iterator[Site]:
    with (
        relay(f"127.0.0.1:{registry.port}", rate=8 << 20) as (upstream, address),
        cached(directory / "cache", host=HOST, upstream=f"http://{address}") as cache,
        nodes(directory, cache) as found,
    ):
        yield Site(registry, upstream, cache, found)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, registry: Registries) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("s"), registry) as found:
        yield found


def test_the_second_node_gets_no_layer_from_the_registry(shared: Site) -> None:
    image = shared.push("shared")
    assert shared.prepare(0, image) > SIZE
    assert len(shared.cache.blobs()) == 3, "the layer, the configuration and the manifest"
    assert shared.prepare(1, image) < 4096, "no more than which manifest the tag means"


@pytest.mark.parametrize("node", [0, 1])
def test_a_dead_cache_holds_up_no_pull(shared: Site, node: int) -> None:
    """Also not while its file is there: the agent has not looked yet."""
    image = shared.push(f"dead-{node}")
    shared.cache.kill()
    try:
        assert (shared.nodes[node].certs / HOST / "hosts.toml").exists()
        assert shared.prepare(node, image) > SIZE
        missing = shared.nodes[node].agent.prepare(f"{HOST}/missing:1")
        assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    finally:
        shared.cache.start()


@pytest.mark.parametrize("node", [0, 1])
def test_an_image_that_is_not_there_is_told_as_such(shared: Site, node: int) -> None:
    answer = shared.nodes[node].agent.prepare(f"{HOST}/missing:1")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_a_private_image_comes_from_the_registry_itself(tmp_path: Path, registry: Registries) -> None:
    """The cache has no credentials, gets none of a tenant, and keeps nothing of its image."""
    registry.push("private-image", TestImage(layers=[Layer(files={"name": b"private"})]))
    host, upstream = "private.example", f"http://127.0.0.1:{registry.private_port}"
    body = {"image": f"{host}/private-image:1", "tenant": "research"}
    with cached(tmp_path / "cache", host=host, upstream=upstream) as cache, nodes(tmp_path, cache) as found:
        for node in found:
            call = lambda more, agent=node.agent: agent.call("POST", "/v1/images?wait=30", body=body | more)  # noqa: E731
            refused = call({})
            assert (refused.status_code, refused.json()["code"]) == (403, "unauthorized")
            given = call({"auth": {"username": USER, "password": PASSWORD}})
            assert given.status_code == 200, given.text
            other = call({"tenant": "another"})
            assert other.status_code == 403, "it is not another tenant's"
        assert cache.blobs() == []


def test_images_go_when_their_time_is_over(tmp_path: Path, registry: Registries) -> None:
    registry.push("short", TestImage(layers=[Layer(files={"name": b"short"})]))
    upstream = f"http://127.0.0.1:{registry.port}"
    with (
        cached(tmp_path / "cache", host=HOST, upstream=upstream, ttl="3s") as cache,
        nodes(tmp_path, cache) as found,
    ):
        assert found[0].agent.prepare(f"{HOST}/short:1").status_code == 200
        wait_until(lambda: not cache.blobs(), what="nothing is kept")
        assert found[1].agent.prepare(f"{HOST}/short:1").status_code == 200, "it is fetched anew"
        assert cache.blobs()


def test_an_agent_that_ends_leaves_no_file(tmp_path: Path, registry: Registries) -> None:
    with site(tmp_path, registry) as own:
        agent = own.nodes[0].agent
        assert agent.end(signal.SIGTERM) == 0
        assert list(own.nodes[0].certs.iterdir()) == []
        agent.start()
