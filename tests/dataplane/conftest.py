"""Fixtures of the data plane's tests: uvloop, local upstreams, a gateway, and a check that nothing is left."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import uvloop

from tests.dataplane.gateway import Client, Gateway
from tests.dataplane.pools import pool
from tests.dataplane.queue_owner import owner
from tests.dataplane.sidecar import tcp_to
from tests.dataplane.upstreams import Behaviour, Upstream
from tests.waiting import until_empty

__all__ = ["owner", "pool"]

HERE = Path(__file__).parent


def pytest_asyncio_loop_factories():
    """The gateway runs on uvloop, so its tests do."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that hangs fails by itself: the loop's C code does not hear pytest-timeout's signal."""
    for item in items:
        ours = isinstance(item, pytest.Function) and HERE in item.path.parents
        if ours and inspect.iscoroutinefunction(item.obj):
            item.obj = _bounded(item.obj)


def _bounded(function):
    @functools.wraps(function)
    async def bounded(*args, **kwargs):
        async with asyncio.timeout(100):
            return await function(*args, **kwargs)

    return bounded


@pytest.fixture(autouse=True)
async def _no_leaks():
    """No task and no descriptor outlives a test."""
    tasks_before = asyncio.all_tasks()
    descriptors_before = set(os.listdir("/proc/self/fd"))
    yield

    def left() -> list[object]:
        tasks = asyncio.all_tasks() - tasks_before - {asyncio.current_task()}
        descriptors = set(os.listdir("/proc/self/fd")) - descriptors_before
        links = [f"{fd} -> {_link(fd)}" for fd in descriptors]
        # "closed" was the directory itself; /dev/null is the loop's reserve for when descriptors run out.
        return [*tasks, *(link for link in links if not link.endswith((" -> closed", " -> /dev/null")))]

    await until_empty(left)


def _link(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return "closed"


@pytest.fixture
async def stack(_no_leaks):
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def upstream(stack: AsyncExitStack, tmp_path: Path):
    """`await upstream(behaviour)` starts a server: on a Unix socket, or with tcp=True on loopback."""
    count = 0

    async def start(behave: Behaviour, *, tcp: bool = False, host: str = "127.0.0.1") -> Upstream:
        nonlocal count
        count += 1
        server = Upstream(behave)
        await server.start(path=None if tcp else tmp_path / f"{count}.sock", host=host)
        stack.push_async_callback(server.close)
        return server

    return start


@pytest.fixture
def gateway(stack: AsyncExitStack):
    """`await gateway()` starts one."""

    async def start(**options) -> Gateway:
        gateway = Gateway(**options)
        await gateway.start()
        stack.push_async_callback(gateway.close)
        return gateway

    return start


@pytest.fixture
def client(stack: AsyncExitStack):
    """`await client(gateway)` connects."""

    async def connect(gateway: Gateway) -> Client:
        client = await Client.connect(gateway)
        stack.push_async_callback(client.close)
        return client

    return connect


@pytest.fixture
async def ready(gateway, upstream):
    """`await ready(behaviour)`: a gateway whose sb-1 behaves so."""

    async def start(behave, *, tcp: bool = False, **options):
        server = await upstream(behave, tcp=tcp)
        gw = await gateway(**options)
        gw.route(server.address)
        return gw, server

    return start


@pytest.fixture
async def exposed(gateway, upstream):
    """`await exposed(app)`: a gateway whose sb-1 has `app` on its port 8000, and the exposure of it."""

    async def start(app, *, protocol: str = "HTTP", **options):
        server = await upstream(app, tcp=True)
        side = await upstream(tcp_to({8000: int(server.address.rpartition(":")[2])}))
        gw = await gateway(**options)
        gw.route(side.address)
        exposure = await gw.exposures.add("sb-1", "acme", 8000, "web", protocol)
        return gw, exposure, side, server

    return start
