"""Nodes that pull through a cache of a registry: what the registry still serves, and what happens without the cache."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.relay import Relay, relay
from tests.node.private_containerd import NEEDS_CONTAINERD
from tests.node.registries import PASSWORD, USER, Layer, Registries, TestImage
from tests.node.registry_cache import MirroredNode, NosyCache, RegistryCache, cached, nodes, nosy
from tests.waiting import wait_until

pytestmark = NEEDS_CONTAINERD

HOST = "slow.example"
SIZE = 1 << 20


# Of the private registry, and of one whose layers are kept for a moment.
PRIVATE_HOST, BRIEF_HOST = "private.example", "brief.example"
NOSY_HOST = "nosy.example"


@dataclass(frozen=True, slots=True)
class Site:
    """Two nodes, caches by host, and a registry whose bytes are counted: that of HOST."""

    registry: Registries
    upstream: Relay
    caches: dict[str, RegistryCache]
    nosy: NosyCache
    nodes: list[MirroredNode]

    def push(self, name: str) -> str:
        """Push an image; return its digest."""
        return self.registry.push(name, TestImage(layers=[Layer(files={"data": os.urandom(SIZE)})]))

    def prepare(self, node: int, image: str) -> int:
        """Prepare it on a node; return how many bytes the registry sent for it."""
        before = self.upstream.sent
        answer = self.nodes[node].agent.prepare(image)
        assert answer.status_code == 200, answer.text
        assert (Path(answer.json()["rootfs"]) / "data").stat().st_size == SIZE
        return self.upstream.sent - before

    def file(self, node: int) -> Path:
        return self.nodes[node].certs / HOST / "hosts.toml"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, registry: Registries) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("s")
    with relay(f"127.0.0.1:{registry.port}", rate=8 << 20) as (upstream, address), ExitStack() as exits:
        caches = {
            host: exits.enter_context(
                cached(directory / host, host=host, upstream=f"http://{where}", ttl=ttl)
            )
            for host, where, ttl in (
                (HOST, address, "168h"),
                (PRIVATE_HOST, f"127.0.0.1:{registry.private_port}", "168h"),
                (BRIEF_HOST, f"127.0.0.1:{registry.port}", "10s"),  # a look may be late by some seconds
            )
        }
        private = f"http://127.0.0.1:{registry.private_port}"
        asking = exits.enter_context(nosy(NOSY_HOST, upstream=private))
        found = exits.enter_context(nodes(directory, *caches.values(), asking))
        yield Site(registry, upstream, caches, asking, found)


def test_the_second_node_gets_no_layer_from_the_registry(site: Site) -> None:
    site.push("shared")
    cache, others = site.caches[HOST], set(site.caches[HOST].blobs())
    assert site.prepare(0, f"{HOST}/shared:1") > SIZE
    # The cache keeps a blob only after it has sent it.
    wait_until(
        lambda: len(set(cache.blobs()) - others) == 3,
        what="the cache has the layer, the configuration and the manifest",
    )
    assert site.prepare(1, f"{HOST}/shared:1") < 2048, "no more than which manifest the tag means"


@pytest.mark.parametrize("node", [0, 1])
def test_a_dead_cache_holds_up_no_pull(site: Site, node: int) -> None:
    """Also not while its file is there: the agent has not looked yet."""
    site.push(f"dead-{node}")
    site.caches[HOST].kill()
    try:
        assert site.file(node).exists()
        assert site.prepare(node, f"{HOST}/dead-{node}:1") > SIZE
        missing = site.nodes[node].agent.prepare(f"{HOST}/missing:1")
        assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    finally:
        site.caches[HOST].start()


def test_a_registry_with_plain_http_needs_no_cache(site: Site) -> None:
    """An agent that starts while the cache is down drops it, and containerd's default would be HTTPS."""
    site.push("dropped")
    site.caches[HOST].kill()
    agent = site.nodes[0].agent
    try:
        assert agent.end(signal.SIGKILL) < 0
        agent.start()
        wait_until(lambda: "[host." not in site.file(0).read_text(), what="the agent has looked")
        assert site.prepare(0, f"{HOST}/dropped:1") > SIZE
    finally:
        site.caches[HOST].start()
        agent.end(signal.SIGKILL)
        agent.start()
        wait_until(lambda: "[host." in site.file(0).read_text(), what="the node uses the cache again")


@pytest.mark.parametrize("node", [0, 1])
def test_a_pull_goes_on_when_the_cache_dies(site: Site, node: int) -> None:
    name = f"cut-{node}"
    site.registry.push(name, TestImage(layers=[Layer(files={"data": os.urandom(4 * SIZE)})]))
    before, agent = site.upstream.sent, site.nodes[node].agent
    with site.upstream.held(after=SIZE):  # or the cache has the whole layer before it is killed
        assert agent.call("POST", "/v1/images", body={"image": f"{HOST}/{name}:1"}).status_code == 202
        wait_until(lambda: site.upstream.sent - before >= SIZE, what="a part of the image is pulled")
        site.caches[HOST].kill()
    try:
        rootfs = Path(agent.prepare(f"{HOST}/{name}:1").json()["rootfs"])
        assert (rootfs / "data").stat().st_size == 4 * SIZE
        whole = [blob for blob in site.caches[HOST].blobs() if blob.stat().st_size > 2 * SIZE]
        assert whole == [], "the cache died before it had the layer"
    finally:
        site.caches[HOST].start()


@pytest.mark.parametrize("node", [0, 1])
def test_an_image_that_is_not_there_is_told_as_such(site: Site, node: int) -> None:
    answer = site.nodes[node].agent.prepare(f"{HOST}/missing:1")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize("node", [0, 1])
def test_a_private_image_comes_from_the_registry_itself(site: Site, node: int) -> None:
    """The cache has no credentials, gets none of a tenant, and keeps nothing of its image."""
    digest = site.push(f"private-{node}")

    def prepare(tenant: str, *, by: str = ":1", **more: Any) -> tuple[int, str]:
        image = f"{PRIVATE_HOST}/private-{node}{by}"
        answer = site.nodes[node].agent.prepare(image, tenant=tenant, **more)
        return answer.status_code, answer.json().get("code", "")

    assert prepare("research") == (403, "unauthorized")
    assert prepare("research", auth={"username": USER, "password": "wrong"}) == (403, "unauthorized")
    # Here the cache is asked first, and its error for what the registry refuses is no refusal.
    assert prepare("research", by=f"@{digest}") == (503, "unavailable")
    assert prepare("research", by=f"@{digest}", auth={"username": USER, "password": PASSWORD}) == (200, "")
    assert prepare("research", auth={"username": USER, "password": PASSWORD}) == (200, "")
    assert prepare("another") == (403, "unauthorized"), "it is not another tenant's"
    assert prepare("another", by=f"@{digest}") == (503, "unavailable")
    assert site.caches[PRIVATE_HOST].blobs() == []


@pytest.mark.parametrize("node", [0, 1])
def test_a_cache_that_asks_for_a_tenants_password_does_not_get_it(site: Site, node: int) -> None:
    """What answers at the address may be another program, and the connection is not encrypted."""
    site.push(f"asked-{node}")
    auth = {"username": USER, "password": PASSWORD}
    answer = site.nodes[node].agent.prepare(f"{NOSY_HOST}/asked-{node}:1", tenant="research", auth=auth)
    assert any(f"/asked-{node}/" in path for path in site.nosy.asked)
    assert site.nosy.given == []
    assert answer.status_code == 200, answer.text


def test_layers_go_when_their_time_is_over(site: Site) -> None:
    site.push("brief")
    cache = site.caches[BRIEF_HOST]
    site.prepare(0, f"{BRIEF_HOST}/brief:1")
    # distribution forgets the manifest, too, but leaves its file.
    wait_until(lambda: len(cache.blobs()) == 1, what="the layer and the configuration are gone")
    body = {"image": f"{BRIEF_HOST}/brief:1"}
    assert site.nodes[1].agent.call("POST", "/v1/images", body=body).status_code == 202
    wait_until(lambda: len(cache.blobs()) == 3, what="they are fetched anew")
    site.prepare(1, f"{BRIEF_HOST}/brief:1")


def test_an_agent_that_ends_leaves_no_file(site: Site) -> None:
    agent = site.nodes[0].agent
    assert site.file(0).exists()
    assert agent.end(signal.SIGTERM) == 0
    assert list(site.nodes[0].certs.iterdir()) == []
    agent.start()
    wait_until(site.file(0).exists, what="the next agent has written it")
