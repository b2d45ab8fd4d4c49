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
    *, host: str, port: int, metrics: Metrics, alive: Check, trouble: Check
) -> AsyncIterator[int]:
    """Serve until the block ends; yields the port. /readyz tells the trouble that no other replica would lack."""

    async def healthz(_: web.Request) -> web.Response:
        wrong = alive()
        return _answer(wrong, status=503 if wrong else 200)

    async def readyz(_: web.Request) -> web.Response:
        # Ready all the same, as a standby is: else the disruption budget would keep the other replica on its node.
        return _answer(trouble(), status=200)

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


def _answer(wrong: str | None, *, status: int) -> web.Response:
    return web.Response(text=f"{wrong or 'ok'}\n", status=status)
