"""Images that a node loads lazily: a sandbox runs before its image's layers are pulled, and sees each file whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kubernetes.boxes import POOLED, until
from tests.kubernetes.killing import own_cluster_only
from tests.kubernetes.lazy_images import Contents, lazy_image
from tests.kubernetes.lazy_nodes import (
    COUNTED,
    CountedRegistry,
    counted_registry,
    lazy_snapshotter_on,
    values,
    worker,
)
from tests.kubernetes.node_agents import leave_no_image
from tests.kubernetes.releases import release_of_its_own

# The name of the pool of each runtime, and the runtime class of its pods.
POOLS = {"runc": {}, "gvisor": {"runtimeClass": "gvisor"}}

# Linux stacks two file systems on each other at most. Those of stargz count as one since Linux 6.9, an image of several
# layers is one, and so is a sandbox's root under runc.
LAYERS = {"runc": 1, "gvisor": 2}


@dataclass(frozen=True, slots=True)
class LazyNode:
    """A node with the lazy snapshotter, a slot under each runtime, and a client of the gateway."""

    registry: CountedRegistry
    client: httpx.Client

    def ready(self, pool: str) -> bool:
        pools = self.client.get("/api/v1/pools").json()["pools"]
        return any(one["name"] == pool and one["ready"] for one in pools)

    def create(self, image: str, *, pool: str) -> dict[str, Any]:
        """The sandbox, which is PENDING."""
        body = {"docker_image": image, "pool": pool, "wait_seconds": 0}
        answer = self.client.post("/api/v1/sandbox", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def look(self, sandbox: dict[str, Any]) -> dict[str, Any]:
        return self.client.get(f"/api/v1/sandbox/{sandbox['id']}").json()

    def run(self, sandbox: dict[str, Any], command: str) -> str:
        answer = self.client.post(f"/sbx/{sandbox['id']}/exec", json={"command": command, "timeout": 60})
        assert answer.status_code == 200, answer.text
        return answer.json()["stdout"]


@pytest.fixture(scope="module")
def lazy() -> Iterator[LazyNode]:
    own_cluster_only()
    with release_of_its_own("lazy", runtime="runc") as stack, ExitStack() as exits:
        node = worker()
        registry = exits.enter_context(counted_registry(node))
        exits.enter_context(lazy_snapshotter_on(registry))
        more = {
            **values(node, lazy=True),
            "gateway.config.registries": [COUNTED],
            "gateway.replicas": 1,
            "controller.replicas": 1,
            "pools": {name: {"size": 1, "template": {**POOLED, **more}} for name, more in POOLS.items()},
        }
        stack.install("--set-json", ",".join(f"{name}={json.dumps(value)}" for name, value in more.items()))
        headers = {"Authorization": f"Bearer {stack.api_key}"}
        with httpx.Client(base_url=stack.url, headers=headers, timeout=90) as client:
            yield LazyNode(registry, client)
        leave_no_image(stack, nodes=[node])


@pytest.mark.parametrize("pool", POOLS)
def test_a_sandbox_runs_before_its_image_is_pulled(lazy: LazyNode, pool: str, tmp_path: Path) -> None:
    until(lambda: lazy.ready(pool))
    contents = Contents(files=300, size=128 << 10, seed=list(POOLS).index(pool))
    image = lazy_image(tmp_path, contents, layers=LAYERS[pool])
    name = lazy.registry.push(image.layout)
    before = lazy.registry.relay.sent

    with lazy.registry.relay.held():
        sandbox = lazy.create(name, pool=pool)
        told = until(lambda: lazy.look(sandbox)["pendingMessage"])
    assert told.startswith(f"preparing the image on node {lazy.registry.node}"), told
    until(lambda: lazy.look(sandbox)["status"] != "PENDING")
    found = lazy.look(sandbox)
    assert (found["status"], found["poolHit"]) == ("RUNNING", True), found["errorMessage"]
    first = lazy.run(sandbox, f"sha256sum /{contents.path(7)}")
    served = lazy.registry.relay.sent - before
    assert first.split()[0] == contents.digest(7)
    assert 0 < served < image.size / 4, "the image was pulled whole"

    every = lazy.run(sandbox, "cd / && sha256sum data/*/*")
    assert {path: digest for digest, path in map(str.split, every.splitlines())} == {
        contents.path(number): contents.digest(number) for number in range(contents.files)
    }
    assert lazy.registry.relay.sent - before > image.size / 2
    assert lazy.client.delete(f"/api/v1/sandbox/{sandbox['id']}").status_code == 200
