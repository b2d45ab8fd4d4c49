# This file is auto-generated from tests/sdk/_async/conftest.py by tools/async_to_sync.py: do not change it.
"""A client and a sandbox for each test of this flavour, and a clock for those of retries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sandlot import Client, Sandbox
from sandlot._sync import client as client_module
from sandlot._sync import commands, reconnects

from tests.sdk._sync.retrying import WINDOW, Clock
from tests.sdk.conftest import Server
from tests.sdk.service.server import Service


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """A client of each kind of server in turn."""
    with Client(url=server.url, api_key=server.api_key) as client:
        yield client


@pytest.fixture
def box(client: Client) -> Iterator[Sandbox]:
    """A new sandbox, deleted after the test."""
    with Sandbox.create(client=client) as box:
        yield box


@pytest.fixture
def faulty(service: Service) -> Iterator[Sandbox]:
    """A sandbox of the small server, whose faults the test chooses."""
    with (
        Client(url=service.url, api_key=service.api_key) as client,
        Sandbox.create(client=client) as box,
    ):
        yield box


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that retries look at."""
    clock = Clock()
    for module in (client_module, commands, reconnects):
        monkeypatch.setattr(module, "now", clock.now)
    for module in (client_module, reconnects):
        monkeypatch.setattr(module, "sleep", clock.sleep)
    return clock


@pytest.fixture
def patient(service: Service, clock: Clock) -> Iterator[Sandbox]:
    """A sandbox of the small server; its client has had an answer."""
    with (
        Client(url=service.url, api_key=service.api_key, retry_for=WINDOW) as client,
        Sandbox.create(client=client) as box,
    ):
        yield box
        service.faults.clear()
