"""A real gateway on an ephemeral port over stub sidecars, and a check that no test leaves a task or descriptor."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop
from sandlot_gateway.app import Gateway
from sandlot_gateway.ending import EndRequests
from sandlot_gateway.serve import serve
from sandlot_gateway.settings import Settings

from tests import plain_http
from tests.gateway.image_node import nodes
from tests.gateway.kubernetes_world import world
from tests.gateway.machine import Machine, StubBackend
from tests.gateway.other_gateways import others
from tests.gateway.polled import http_pool
from tests.gateway.replica import replica
from tests.kube.apiserver import apiserver
from tests.waiting import until_empty

__all__ = ["apiserver", "http_pool", "nodes", "others", "replica", "world"]

API = "/api/v1"
KEY = "key-a"
OPERATOR = "key-ops"
API_KEYS = f"{KEY}:alpha,key-b:beta,key-small:small:2,{OPERATOR}:ops::operate"


def pytest_asyncio_loop_factories():
    """The gateway runs on uvloop, so its tests do."""
    return {"uvloop": uvloop.new_event_loop}


@dataclass
class Running:
    """A gateway that serves, and a client with tenant alpha's key."""

    gateway: Gateway
    url: str
    backend: StubBackend
    machine: Machine
    client: httpx.AsyncClient
    ending: EndRequests
    task: asyncio.Task[int]

    def as_tenant(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"}

    async def metrics(self) -> str:
        answer = await self.client.get("/metrics", headers=self.as_tenant(OPERATOR))
        assert answer.status_code == 200, answer.text
        return answer.text

    async def create(self, **fields: Any) -> dict[str, Any]:
        answer = await self.client.post("/api/v1/sandbox", json={"docker_image": "host", **fields})
        assert answer.status_code == 201, answer.text
        return answer.json()


@asynccontextmanager
async def running(state_dir: Path, machine: Machine, **options: Any) -> AsyncIterator[Running]:
    settings = Settings(
        **{
            "state_dir": state_dir,
            "port": 0,
            "webhook_port": 0,
            "api_keys": API_KEYS,
            "drain": 5.0,
            "log_level": "warning",
            **options,
        }
    )
    loop = asyncio.get_running_loop()
    announced: asyncio.Future[tuple[Gateway, str]] = loop.create_future()
    ending = EndRequests()
    backends: list[StubBackend] = []

    def make_backend(settings: Settings, tokens: Any, pool: Any) -> StubBackend:
        webhook = f"unix:{settings.state_dir / 'gateway.sock'}"
        backends.append(StubBackend(machine, tokens=tokens, webhook=webhook))
        return backends[0]

    task = loop.create_task(
        serve(
            settings,
            make_backend=make_backend,
            requests=ending,
            announce=lambda gateway, url: announced.set_result((gateway, url)),
        )
    )
    await asyncio.wait([task, announced], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    gateway, url = announced.result()
    headers = {"Authorization": f"Bearer {KEY}"}
    async with plain_http.async_client(base_url=url, headers=headers, timeout=30) as client:
        try:
            yield Running(gateway, url, backends[0], machine, client, ending, task)
        finally:
            await client.aclose()
            ending.begin()
            await task


@pytest.fixture(autouse=True)
async def _no_leaks() -> AsyncIterator[None]:
    tasks_before = asyncio.all_tasks()
    before = set(os.listdir("/proc/self/fd"))
    yield

    def left() -> list[object]:
        tasks = asyncio.all_tasks() - tasks_before - {asyncio.current_task()}
        links = [_link(fd) for fd in set(os.listdir("/proc/self/fd")) - before]
        return [*tasks, *(link for link in links if link not in ("closed", "/dev/null"))]

    await until_empty(left)


def _link(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return "closed"


@pytest.fixture
def state_dir():
    """A short path: Unix sockets live in it."""
    with tempfile.TemporaryDirectory(prefix="sg-") as name:
        yield Path(name)


@pytest.fixture
async def machine(_no_leaks: None):
    with tempfile.TemporaryDirectory(prefix="sm-") as name:
        machine = Machine(Path(name))
        yield machine
        await machine.close()


@pytest.fixture
async def box(state_dir: Path, machine: Machine):
    """A running gateway with default settings."""
    async with running(state_dir, machine) as gateway:
        yield gateway


@pytest.fixture
async def mcp(state_dir: Path, machine: Machine) -> AsyncIterator[Running]:
    """One that serves MCP, with a second key of tenant alpha."""
    keys = f"{API_KEYS},key-a2:alpha"
    async with running(
        state_dir, machine, mcp=True, mcp_origins="https://console.example", api_keys=keys
    ) as box:
        yield box
