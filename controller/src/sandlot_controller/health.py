"""Serves /healthz, /readyz and /metrics for the kubelet and Prometheus."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from .metrics import Metrics

Check = Callable[[], str | None]  # returns what is wrong, or None


@asynccontextmanager
async def serving(
    *, host: str, port: int, metrics: Metrics, alive: Check, ready: Check
) -> AsyncIterator[int]:
    """Serve until the block ends; yields the port."""

    async def healthz(_: web.Request) -> web.Response:
        return _answer(alive())

    async def readyz(_: web.Request) -> web.Response:
        # A standby is ready, too: it can take the Lease over.
        return _answer(ready())

    async def numbers(_: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", numbers)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _answer(wrong: str | None) -> web.Response:
    return web.Response(text=f"{wrong or 'ok'}\n", status=503 if wrong else 200)
