"""Sidecars that are polled for owners, over real connections, and what these polls are told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template
from sandlot_gateway.backends.kubernetes.urgent_polls import UrgentPolls
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.data.pool import HttpPool

WARM = {"phase": "warm", "sandbox_id": None}
OWNED = {"phase": "claimed", "sandbox_id": "sb-1"}


class Polled:
    """A gateway's polls. `gone`: ids of instances that are not there any more; `unplaced`: of those without an address."""

    def __init__(self, *, pool: HttpPool, may_start: bool = False) -> None:
        self.told: list[dict[str, Any]] = []
        self.gone: set[str] = set()
        self.unplaced: set[str] = set()
        self._polls = UrgentPolls(
            pool=pool,
            told=self._tell,
            is_there=lambda instance_id: instance_id not in self.gone,
            may_start=lambda instance: may_start,
            has_address=lambda instance: instance.id not in self.unplaced,
        )

    def _tell(self, instance: Instance, state: dict[str, Any]) -> None:
        if state["phase"] == "odd":
            raise TypeError("its generation is no number")
        self.told.append(state)

    async def poll(self, *instances: Instance) -> list[Instance]:
        async with asyncio.timeout(60):
            return await self._polls.poll(instances)

    async def close(self) -> None:
        await self._polls.close()


@pytest.fixture
async def http_pool() -> AsyncIterator[HttpPool]:
    pool = HttpPool()
    yield pool
    await pool.close()


def at(port: int, number: int = 0, *, host: str = "127.0.0.1") -> Instance:
    return Instance(InstanceId(f"i-{number:016x}"), Template("python:3.12"), f"{host}:{port}", "secret")


class Crowd:
    """Sidecars at one address that answer all together, when `free` is set."""

    def __init__(self) -> None:
        self.now = self.most = self.asked = 0
        self.free = asyncio.Event()
        self.port = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.asked += 1
                self.now += 1
                self.most = max(self.most, self.now)
                await asyncio.sleep(0.02)
                await self.free.wait()
                self.now -= 1
                body = json.dumps(WARM).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Crowd]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self.free.set()
            server.close()


@asynccontextmanager
async def answering(
    *states: dict[str, Any], port: int = 0, after: float = 0.0, closes: int = 0
) -> AsyncIterator[int]:
    """A sidecar with these answers in turn, of which the last one stays; the number of its port.

    `after`: seconds that it takes. `closes`: this many connections first.
    """
    left = list(states)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal closes
        closes -= 1
        if closes >= 0:
            writer.close()
            return
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await asyncio.sleep(after)
                body = json.dumps(left.pop(0) if len(left) > 1 else left[0]).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
