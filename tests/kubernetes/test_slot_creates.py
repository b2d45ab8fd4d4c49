"""Creates in slot pods: every image that the nodes can have, in the pods of one pool, without a pod of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster import cluster
from tests.cluster.config import REGISTRY_HOST
from tests.cluster.paths import IMAGES
from tests.kubernetes.boxes import resources, until
from tests.kubernetes.killing import warm_everywhere
from tests.kubernetes.node_agents import PROGRAM, digest_in, leave_no_image
from tests.kubernetes.pools import RECORDED_AFTER
from tests.kubernetes.releases import release_of_its_own, with_slots
from tests.kubernetes.stack import Stack

SLOTS = 3
POOL = {
    "size": SLOTS,
    "template": {"cpu": 1, "memory": 512 << 20, "disk": 1 << 30},
    "reuse": {"policy": "tenant"},
}


@pytest.fixture(scope="module", params=["gvisor", "runc"])
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    with release_of_its_own("creates", runtime=request.param) as made:
        made.install(*with_slots(POOL, gateways=2))
        yield made
        leave_no_image(made)


@pytest.fixture
def client(stack: Stack) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    with httpx.Client(base_url=stack.url, headers=headers, timeout=60) as made:
        yield made


def pods(stack: Stack) -> set[str]:
    found = stack.get("pods", "-n", stack.sandboxes, "-l", "app.kubernetes.io/component=sandbox")["items"]
    return {pod["metadata"]["name"] for pod in found}


def create(client: httpx.Client, image: str) -> dict[str, Any]:
    """The sandbox once it is no longer PENDING."""
    answer = client.post("/api/v1/sandbox", json={"docker_image": image, "wait_seconds": 25})
    assert answer.status_code == 201, answer.text
    sandbox = answer.json()

    def decided() -> dict[str, Any] | None:
        found = client.get(f"/api/v1/sandbox/{sandbox['id']}").json()
        return None if found["status"] == "PENDING" else found

    return until(decided) or {}


def run(client: httpx.Client, sandbox: dict[str, Any], command: str) -> str:
    body = {"command": command, "timeout": 60}
    answer = client.post(f"/sbx/{sandbox['id']}/exec", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["stdout"].strip()


def test_images_that_no_node_has_run_in_the_pods_of_one_pool(stack: Stack, client: httpx.Client) -> None:
    warm_everywhere(stack, size=SLOTS)
    archives: list[Path] = sorted((IMAGES / "archives").glob("*.tar"))
    assert len(archives) > SLOTS
    before = pods(stack)
    ids = set[str]()
    made: set[str] = set()
    long: set[str] = set()  # that may have lived long enough for a record, on a machine that was slow
    for archive in [*archives, archives[0]]:
        name = cluster.push_image(archive)
        began = time.monotonic()
        sandbox = create(client, name)
        made.add(sandbox["id"])
        assert sandbox["status"] == "RUNNING", sandbox
        assert sandbox["poolHit"], sandbox
        ids.add(sandbox["imageDigest"])
        assert run(client, sandbox, f"sha256sum /{PROGRAM}").split()[0] == digest_in(archive, PROGRAM)
        has = f"python3 -c 'import sandlot_{archive.stem.replace('-agent', '')}' 2>/dev/null && echo yes || echo no"
        own_code = archive.stem in ("controller", "gateway", "node-agent", "sidecar")
        assert run(client, sandbox, has) == ("yes" if own_code else "no")
        assert client.delete(f"/api/v1/sandbox/{sandbox['id']}").status_code == 200
        if time.monotonic() - began > RECORDED_AFTER:
            long.add(sandbox["id"])
    assert len(ids) == len(archives)
    after = pods(stack)
    recorded = made & {one["spec"].get("sandboxId") for one in resources(stack)}
    assert recorded <= long
    assert after == before or recorded, "no pod was started for them"


def test_an_image_that_the_registry_lacks_is_told(stack: Stack, client: httpx.Client) -> None:
    warm_everywhere(stack, size=1)
    sandbox = create(client, f"{REGISTRY_HOST}/missing:1")
    assert (sandbox["status"], sandbox["errorType"]) == ("ERROR", "IMAGE_PULL_FAILED"), sandbox
    assert "missing:1" in sandbox["errorMessage"]
