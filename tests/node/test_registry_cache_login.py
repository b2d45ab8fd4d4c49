"""A cache that logs in at its registry by the chart's `credentialsSecret`, with the right password and a wrong one."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.node.private_containerd import NEEDS_CONTAINERD
from tests.node.registries import PASSWORD, USER, Layer, Registries, TestImage
from tests.node.registry_cache import MirroredNode, RegistryCache, cached, nodes
from tests.node.token_registry import token_registry
from tests.waiting import wait_until

pytestmark = [
    *NEEDS_CONTAINERD,
    pytest.mark.parametrize("node", [0, 1]),
    pytest.mark.parametrize("by", ["basic", "token", "public"]),
]

SIZE = 1 << 20
WRONG = "an old pull secret"
# What a pull by digest without credentials gets through a cache with a wrong password: what the cache answers, unless the
# registry itself then gives it.
REFUSALS = {"basic": (403, "unauthorized"), "token": (503, "unavailable"), "public": (200, None)}
LOGIN = {"username": USER, "password": PASSWORD}


@dataclass(frozen=True, slots=True)
class Site:
    """Registries with a login: basic, for a token, or for a token that those without a password get, too, as Docker Hub.

    Each has a cache with the right password, and one with a wrong one.
    """

    registry: Registries
    right: dict[str, RegistryCache]
    wrong: dict[str, RegistryCache]
    nodes: list[MirroredNode]
    directory: Path

    def push(self, name: str) -> str:
        """Push an image; return its digest."""
        return self.registry.push(name, TestImage(layers=[Layer(files={"data": os.urandom(SIZE)})]))

    def prepare(self, node: int, image: str, **more: object) -> tuple[int, dict[str, str]]:
        answer = self.nodes[node].agent.prepare(image, tenant="research", **more)
        return answer.status_code, answer.json()

    def logs(self) -> dict[Path, str]:
        """Everything that programs have logged, but for the registries themselves."""
        return {file: file.read_text(errors="replace") for file in self.directory.rglob("*.log")}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, registry: Registries) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("l")
    with ExitStack() as exits:
        upstreams = {"basic": f"http://127.0.0.1:{registry.private_port}"}
        for by, public in (("token", False), ("public", True)):
            asking = token_registry(port=registry.port, user=USER, password=PASSWORD, public=public)
            upstreams[by] = exits.enter_context(asking)

        def caches(word: str, password: str) -> dict[str, RegistryCache]:
            secret = {"username": USER, "password": password}
            return {
                by: exits.enter_context(
                    cached(
                        directory / f"{word}-{by}", host=f"{word}-{by}.example", upstream=url, secret=secret
                    )
                )
                for by, url in upstreams.items()
            }

        right, wrong = caches("right", PASSWORD), caches("wrong", WRONG)
        found = exits.enter_context(nodes(directory, *right.values(), *wrong.values()))
        yield Site(registry, right, wrong, found, directory)


def test_the_right_password_gets_what_the_registry_gives_nobody_without(
    site: Site, by: str, node: int
) -> None:
    cache, name = site.right[by], f"login-{by}-{node}"
    digest, others = site.push(name), set(cache.blobs())
    status, answer = site.prepare(node, f"{cache.host}/{name}@{digest}")
    assert status == 200, answer
    assert (Path(answer["rootfs"]) / "data").stat().st_size == SIZE
    wait_until(
        lambda: len(set(cache.blobs()) - others) == 3,
        what="the cache has the layer, the configuration and the manifest",
    )
    nowhere_in_logs(site)


def test_a_wrong_password_caches_nothing_and_the_log_says_why(site: Site, by: str, node: int) -> None:
    cache, name = site.wrong[by], f"refused-{by}-{node}"
    digest = site.push(name)
    status, answer = site.prepare(node, f"{cache.host}/{name}@{digest}")
    assert (status, answer.get("code")) == REFUSALS[by], answer
    # Who has a password gets the image from the registry itself.
    status, answer = site.prepare(node, f"{cache.host}/{name}@{digest}", auth=LOGIN)
    assert status == 200, answer
    assert cache.blobs() == []
    told = [line for line in cache.log.read_text().splitlines() if name in line]
    assert told
    assert all("unauthorized" in line for line in told)
    nowhere_in_logs(site)


def nowhere_in_logs(site: Site) -> None:
    logs = site.logs()
    assert len(logs) == 10, "of six caches, two agents and two containerds"
    for password in (PASSWORD, WRONG):
        whole = base64.b64encode(f"{USER}:{password}".encode()).decode()
        for file, text in logs.items():
            assert password not in text, file
            assert whole not in text, file
