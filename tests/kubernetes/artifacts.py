"""A release of the tree, and a registry that has it and nothing else: all that somebody else gets of it."""

from __future__ import annotations

import hashlib
import json
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from images.oci import MANIFEST, archive_index
from tests.cluster import cluster, registry
from tests.cluster.engine import Engine
from tests.kubernetes.stack import CHART
from tests.release.trees import release

HOST = "release.sandlot.test:5055"
REGISTRY = f"{HOST}/sandlot"  # as the nodes call it


@dataclass(frozen=True, slots=True)
class Artifacts:
    version: str
    out: Path  # the release's directory
    registry: registry.Registry

    @property
    def chart(self) -> str:
        return f"oci://{self.registry.address}/sandlot/charts/sandlot"

    @property
    def digests(self) -> dict[str, str]:
        """Of the images' manifests, by the images' names."""
        return {each.stem: archive_index(each)[1] for each in (self.out / "images").iterdir()}

    def ask(self, path: str) -> dict[str, Any]:
        """What the registry answers."""
        request = urllib.request.Request(
            f"http://{self.registry.address}/v2/{path}", headers={"Accept": MANIFEST}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def digest(self, path: str) -> str:
        """Of all the bytes that the registry gives."""
        request = urllib.request.Request(
            f"http://{self.registry.address}/v2/{path}", headers={"Accept": MANIFEST}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return f"sha256:{hashlib.file_digest(answer, 'sha256').hexdigest()}"

    def asked_by_nodes(self) -> set[str]:
        """The paths of which nodes were given something, from the registry's log of requests."""
        lines = [line.split('"') for line in self.registry.log.read_text().splitlines() if '"' in line]
        given = [
            parts
            for parts in lines
            if len(parts) > 5 and parts[5].startswith("containerd/") and " 200 " in parts[2]
        ]
        return {parts[1].split()[1].partition("?")[0] for parts in given}


@contextmanager
def published(directory: Path) -> Iterator[Artifacts]:
    """With the images that the cluster's tests use, so that nothing is built twice; nodes keep none of them."""
    if shutil.which("skopeo") is None:
        pytest.fail("skopeo, which pushes the images, is missing; `make cluster` installs it")
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    directory.mkdir(exist_ok=True)
    out = directory / version
    engine = cluster.recorded()
    nodes = cluster.nodes(engine)
    try:
        with (
            registry.another(engine, nodes=nodes, host=HOST, directory=directory) as own,
            ExitStack() as last,
        ):
            _forget(engine, nodes)  # what a killed run has left
            made = Artifacts(version, out, own)
            assert made.ask("_catalog")["repositories"] == []
            _done("build", version, "--registry", REGISTRY, "--out", str(out), "--dirty")
            where = ("--registry", f"{own.address}/sandlot", "--out", str(out), "--plain-http")
            _done("publish", version, *where)
            assert [name for node in nodes for name in _images(engine, node)] == []
            last.callback(_forget, engine, nodes)
            yield made
    finally:
        shutil.rmtree(directory)  # two gigabytes


def _forget(engine: Engine, nodes: list[str]) -> None:
    """Takes the registry's images from the nodes; goes on after an error, and raises it at the end."""
    with ExitStack() as each:
        for node in nodes:
            each.callback(_forget_on, engine, node)


def _forget_on(engine: Engine, node: str) -> None:
    with ExitStack() as each:
        for name in _images(engine, node):
            each.callback(engine.on_node, node, "ctr", "-n", "k8s.io", "images", "remove", "--sync", name)


def _done(*words: str) -> None:
    done = release(*words)
    assert done.returncode == 0, done.stderr


def _images(engine: Engine, node: str) -> list[str]:
    """Those of the registry that a node has."""
    listed = engine.on_node(node, "ctr", "-n", "k8s.io", "images", "list", "--quiet")
    return [name for name in listed.split() if name.startswith(f"{HOST}/")]
