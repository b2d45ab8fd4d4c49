"""A local stack per test, a client for it, and the certainty that nothing stays behind."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot import Client

from tests.leaks import no_leaks
from tests.stack import Stack


@pytest.fixture
def stack() -> Iterator[Stack]:
    if os.geteuid() != 0:
        pytest.skip("needs root: real namespaces and cgroups")
    # Not pytest's own directory: its long path leaves no room for the names of Unix sockets (108 bytes).
    with (
        tempfile.TemporaryDirectory(prefix="sandlot-") as directory,
        no_leaks(marker=directory, descriptors=False),
        Stack(Path(directory) / "state") as running,
    ):
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    made = Client(url=stack.url, api_key=stack.api_key)
    try:
        yield made
    finally:
        made.close()
