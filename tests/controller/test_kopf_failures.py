"""A watch of kopf that fails ends kopf, although the watch of another resource is open."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest
from aiohttp import web
from sandlot_controller import lifecycle
from sandlot_controller.kopf_watches import KopfWatches
from sandlot_kube.access import Access

from tests.controller.played_api import DISCOVERY

pytestmark = pytest.mark.programs


class Server:
    """Watches stay open; image warm-ups are refused with `status` when listed, or in a watch that is open for a while."""

    def __init__(self, status: int, *, listed: bool) -> None:
        self._status = {"kind": "Status", "code": status, "message": "the test refuses it"}
        self._listed = listed
        self._sandboxes = asyncio.Event()  # their watch is open

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if (found := DISCOVERY.get(request.path)) is not None:
            return web.json_response(found)
        warmups = request.path.endswith("/imagewarmups")
        if "watch" not in request.query:
            if warmups and not self._listed:
                await self._sandboxes.wait()
                return web.json_response(self._status, status=self._status["code"])
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        answer = web.StreamResponse()
        await answer.prepare(request)
        if warmups:
            await self._sandboxes.wait()
            await answer.write(json.dumps({"type": "ERROR", "object": self._status}).encode() + b"\n")
        else:
            self._sandboxes.set()
        await asyncio.Event().wait()
        return answer


@pytest.mark.parametrize(("status", "listed"), [(404, False), (500, True)])
async def test_it_ends_with_one_of_its_watches(status: int, listed: bool) -> None:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", Server(status, listed=listed).handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        access = Access("http://{}:{}".format(*runner.addresses[0][:2]))
        with pytest.raises(lifecycle.LifecycleFailed, match="the test refuses it"):
            async with asyncio.timeout(60):
                await lifecycle.run(
                    cast(Any, None), cast(Any, None), KopfWatches("s"), access=access, namespace="s"
                )
    finally:
        await runner.cleanup()
