"""The API server of tests/kube with our resources in it, and a cluster played by the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from sandlot_kube.client import KubeClient

from tests.controller.cluster import Cluster
from tests.goodbyes import sockets_closed
from tests.kube.apiserver import ApiServer, apiserver

__all__ = ["apiserver"]

CRDS = Path(__file__).parents[2] / "charts/sandlot/crds"


@pytest.fixture(scope="session")
def resources(apiserver: ApiServer) -> ApiServer:
    for path in sorted(CRDS.glob("*.yaml")):
        apiserver.apply_crd(yaml.safe_load(path.read_text()))
    return apiserver


@pytest.fixture
async def cluster(resources: ApiServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    key = tmp_path / "master"
    key.write_bytes(b"k" * 32)
    async with sockets_closed():
        client = KubeClient(resources.access(namespace=resources.namespace("sandboxes")))
        try:
            async with Cluster(client, key_file=key).running() as cluster:
                yield cluster
        finally:
            await client.close()
