"""Image warm-ups in the cluster: the command line's data set gets to the nodes, and what is missing is told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import environment
from tests.cluster import cluster
from tests.cluster.config import REGISTRY_HOST
from tests.cluster.paths import IMAGES
from tests.kubernetes.killing import own_cluster_only
from tests.kubernetes.node_agents import Agent
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import Stack


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    own_cluster_only()
    with release_of_its_own("warmups", runtime="runc") as made:
        values = {
            "nodeAgent": {"enabled": True, "config": {"minFree": 0}},
            "slots": {"enabled": True},
            "pools": {},
            "defaultPool.enabled": False,
            "gateway.replicas": 1,
            "controller.replicas": 1,
            "gateway.config.registries": [REGISTRY_HOST],
        }
        more = ",".join(f"{name}={json.dumps(value)}" for name, value in values.items())
        made.install("--set-json", more)
        yield made


def test_a_data_set_gets_to_the_nodes(stack: Stack, tmp_path: Path) -> None:
    images = [cluster.push_image(IMAGES / "archives" / f"{name}.tar") for name in ("python", "node-agent")]
    missing = f"{REGISTRY_HOST}/no-such-image:1"
    rows = [{"docker_image": image} for image in [*images, images[0], missing]]
    (tmp_path / "tasks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "sandlot",
            "images",
            "warm",
            str(tmp_path / "tasks.jsonl"),
            "--timeout",
            "540",
            "--json",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=environment(stack.url, stack.api_key, tmp_path),
    )
    assert done.returncode == 1, done.stderr
    warmup = json.loads(done.stdout)
    assert (warmup["state"], warmup["images"], warmup["ready"], warmup["failed"]) == ("DONE", 3, 2, 1)
    assert warmup["copies"] == warmup["copies_ready"]
    assert warmup["bytes"] > 0
    assert [error["image"] for error in warmup["errors"]] == [missing]
    nodes = [
        pod["spec"]["nodeName"]
        for pod in stack.get("pods", "-n", stack.sandboxes, "-l", "app.kubernetes.io/component=node-agent")[
            "items"
        ]
    ]
    for node in nodes:
        status, told = Agent(stack, node).call("GET", "/v1/images")
        assert status == 200
        names = {name for image in told["images"] for name in image["names"]}
        assert names >= set(images), "so few images are on every node"
    resource = stack.get("imagewarmups", warmup["id"], "-n", stack.sandboxes)
    assert resource["status"]["phase"] == "Done"
