"""A client and a sandbox for each test of this flavour, and a clock for those of retries."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sandlot import AsyncClient, AsyncSandbox
from sandlot._async import client as client_module
from sandlot._async import commands, reconnects

from tests.sdk._async.retrying import WINDOW, Clock
from tests.sdk.conftest import Server
from tests.sdk.service.server import Service


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    """A client of each kind of server in turn."""
    async with AsyncClient(url=server.url, api_key=server.api_key) as client:
        yield client


@pytest.fixture
async def box(client: AsyncClient) -> AsyncIterator[AsyncSandbox]:
    """A new sandbox, deleted after the test."""
    async with await AsyncSandbox.create(client=client) as box:
        yield box


@pytest.fixture
async def faulty(service: Service) -> AsyncIterator[AsyncSandbox]:
    """A sandbox of the small server, whose faults the test chooses."""
    async with (
        AsyncClient(url=service.url, api_key=service.api_key) as client,
        await AsyncSandbox.create(client=client) as box,
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
async def patient(service: Service, clock: Clock) -> AsyncIterator[AsyncSandbox]:
    """A sandbox of the small server; its client has had an answer."""
    async with (
        AsyncClient(url=service.url, api_key=service.api_key, retry_for=WINDOW) as client,
        await AsyncSandbox.create(client=client) as box,
    ):
        yield box
        service.faults.clear()
