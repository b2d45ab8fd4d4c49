"""A containerd and a gateway for all images of a worker, and the archives, built once and kept in the cache."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot import Client

from tests.cluster.paths import BIN
from tests.conformance.containers import Containers, containerd, in_memory
from tests.conformance.meant import LOCAL
from tests.conformance.places import Place, Sandboxes
from tests.leaks import no_leaks
from tests.stack import Stack

NEEDS = [
    pytest.mark.programs,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces and cgroups"),
    pytest.mark.skipif(
        not (BIN / "containerd").exists() or shutil.which("runc") is None,
        reason="needs runc, and containerd of the test cluster (`make cluster` builds it)",
    ),
]


@pytest.fixture(scope="session")
def containers() -> Iterator[Containers]:
    with containerd() as running:
        yield running


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    """Of a gateway whose cache is empty."""
    # Not pytest's own directory: a Unix socket's path has little room.
    with (
        in_memory() as cache,
        tempfile.TemporaryDirectory(prefix="sandlot-") as directory,
        no_leaks(marker=directory, descriptors=False),
        Stack(Path(directory) / "state", env={"SANDLOT_CACHE": str(cache)}) as stack,
        Client(url=stack.url, api_key=stack.api_key) as found,
    ):
        yield found


@pytest.fixture(scope="session")
def place(client: Client) -> Place:
    """The local backend, whose images are files."""
    return Sandboxes(client, meant=LOCAL, name_of=str)
