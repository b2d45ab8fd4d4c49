"""The client of the node agents: calls that agents hold take no place from others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web
from sandlot_controller.act.node_agents import NodeAgents, NodeImages

from tests.ports import free_port
from tests.waiting import SECONDS, until

NODES = [f"127.0.1.{number}" for number in range(1, 151)]


class Fleet:
    """Agents at many addresses, which hold every preparation; `most_looks`: at one time."""

    def __init__(self) -> None:
        self.port = free_port()
        self.preparing = 0
        self.looks = self.most_looks = 0

    async def prepare(self, request: web.Request) -> web.Response:
        self.preparing += 1
        await asyncio.Event().wait()
        return web.json_response({}, status=202)

    async def images(self, request: web.Request) -> web.Response:
        self.looks += 1
        self.most_looks = max(self.most_looks, self.looks)
        await asyncio.sleep(0.05)
        self.looks -= 1
        return web.json_response({"images": [{"names": ["image"], "bytes": 10, "uses": []}]})

    async def usage(self, request: web.Request) -> web.Response:
        return web.json_response({"budget": 100})


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    fleet = Fleet()
    app = web.Application()
    app.add_routes(
        [
            web.post("/v1/images", fleet.prepare),
            web.get("/v1/images", fleet.images),
            web.get("/v1/usage", fleet.usage),
        ]
    )
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", fleet.port).start()
    try:
        yield fleet
    finally:
        await runner.cleanup()


async def test_preparations_on_many_nodes_hold_up_no_other_call(fleet: Fleet, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a token")
    agents = NodeAgents(token, port=fleet.port)
    held = [asyncio.create_task(agents.prepare(node, "image", tenant="alpha", auth=None)) for node in NODES]
    try:
        async with asyncio.timeout(SECONDS):
            await until(lambda: fleet.preparing == len(NODES))
            looks = await asyncio.gather(*(agents.images(node) for node in NODES))
        assert looks == [NodeImages(100, {"image": 10})] * len(NODES)
        assert fleet.most_looks <= 50
    finally:
        for task in held:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await agents.close()
