"""The servers that the SDK is tested against: the small one of service.py, and the real local stack."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.leaks import snapshot
from tests.sdk.service.server import Service
from tests.stack import Stack
from tests.waiting import wait_until_empty


@dataclass(frozen=True)
class Server:
    """Where a server is, whichever it is."""

    url: str
    api_key: str


def assert_gone(home: Path, *, seconds: float = 60.0) -> None:
    """No process works in this state directory and nothing is mounted for it; other stacks are no concern here."""

    def left() -> list[object]:
        now = snapshot(marker=str(home))
        return [*now.sandlot_processes, *(mount for mount in now.mounts if str(home) in mount)]

    wait_until_empty(left, seconds=seconds)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A server of its own for each test, whose faults can be chosen."""
    root = tmp_path / "root"
    root.mkdir()
    with Service(root) as running:
        yield running


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One real local stack for all the tests that ask for it."""
    if os.geteuid() != 0:
        pytest.skip("needs root: starts real sandboxes")
    with Stack(tmp_path_factory.mktemp("stack") / "state", options=("--pool", "warm=2")) as running:
        yield running


@pytest.fixture(params=["service", pytest.param("stack", marks=pytest.mark.root)])
def server(request: pytest.FixtureRequest) -> Server:
    """Both kinds, one after the other: what the SDK promises must hold with each."""
    found = request.getfixturevalue(request.param)
    return Server(url=found.url, api_key=found.api_key)
