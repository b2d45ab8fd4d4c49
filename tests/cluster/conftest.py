"""The cluster that is up, for the tests that need it; without one they are skipped with the reason."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.cluster import cluster
from tests.cluster.engine import Engine
from tests.cluster.paths import IMAGES
from tests.cluster.shell import ClusterError


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The engine of the cluster that is up."""
    try:
        found = cluster.recorded()
        cluster.kubectl(found, "get", "--raw", "/readyz", timeout=60)
    except ClusterError as error:
        pytest.skip(f"needs the test cluster (`make cluster`): {str(error).splitlines()[0]}")
    return found


@pytest.fixture(scope="session")
def python_image(engine: Engine) -> str:
    """The name of the Python sandbox image, on every node."""
    archive = IMAGES / "archives" / "python.tar"
    if not archive.exists():
        pytest.skip("needs the test cluster's images (`make cluster-images`)")
    return cluster.load_image(archive)


@pytest.fixture
def namespace(engine: Engine) -> Iterator[str]:
    """A namespace of the test's own."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.kubectl(engine, "create", "namespace", name)
    yield name
    cluster.kubectl(engine, "delete", "namespace", name, "--timeout=240s")
