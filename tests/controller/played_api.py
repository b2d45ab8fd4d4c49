"""An API server played over real HTTP: it keeps a Lease, and answers for a collection as a test says; kopf runs on it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from sandlot_kube import paths
from sandlot_kube.access import Access
from sandlot_kube.client import KubeClient

from tests.kube.scripted import Answer, failed, listed

NAMESPACE = "s"
COLLECTIONS = {
    paths.pods(NAMESPACE),
    paths.nodes(),
    paths.sandboxes(NAMESPACE),
    paths.pools(NAMESPACE),
    paths.warmups(NAMESPACE),
}
GROUP = "/apis/sandlot.dev/v1alpha1"
VERSION = {"version": "v1alpha1", "groupVersion": "sandlot.dev/v1alpha1"}


def _served(name: str, kind: str) -> dict[str, Any]:
    verbs = ["get", "list", "watch", "patch", "create", "delete"]
    return {"name": name, "kind": kind, "singularName": kind.lower(), "namespaced": True, "verbs": verbs}


DISCOVERY: dict[str, dict[str, Any]] = {
    "/api": {"versions": ["v1"]},
    "/api/v1": {"resources": [_served("namespaces", "Namespace"), _served("events", "Event")]},
    "/apis": {"groups": [{"name": "sandlot.dev", "versions": [VERSION], "preferredVersion": VERSION}]},
    GROUP: {"resources": [_served("sandboxes", "Sandbox"), _served("imagewarmups", "ImageWarmup")]},
}


class PlayedApi:
    """`lists` and `watches`: answers by collection, as long as they are there; else lists are empty, watches open."""

    def __init__(self) -> None:
        self.lists: dict[str, Answer] = {}
        self.watches: dict[str, Answer] = {}
        self.asked: dict[str, list[float]] = {}  # when, by collection
        self.lease: dict[str, Any] | None = None
        self._cuts: dict[str, asyncio.Event] = {}

    def has_open(self, path: str) -> bool:
        return path in self._cuts

    def cut(self, path: str) -> None:
        """End the open watches of a collection."""
        self._cuts.pop(path, asyncio.Event()).set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if "/leases" in request.path:
            return await self._lease(request)
        if (found := DISCOVERY.get(request.path)) is not None:
            return web.json_response(found)
        if request.path not in COLLECTIONS:
            return await failed(404, "NotFound")(request)
        self.asked.setdefault(request.path, []).append(time.monotonic())
        if "watch" in request.query:
            return await self.watches.get(request.path, self._open)(request)
        return await self.lists.get(request.path, listed(version=1))(request)

    async def _open(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await self._cuts.setdefault(request.path, asyncio.Event()).wait()
        return response

    async def _lease(self, request: web.Request) -> web.StreamResponse:
        if request.method in ("POST", "PUT") and "dryRun" not in request.query:
            self.lease = json.loads(await request.read())
        return await (failed(404, "NotFound")(request) if self.lease is None else _json(self.lease))


async def _json(body: dict[str, Any]) -> web.StreamResponse:
    return web.json_response(body)


@asynccontextmanager
async def played_api() -> AsyncIterator[tuple[PlayedApi, KubeClient]]:
    played = PlayedApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", played.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        client = KubeClient(
            Access("http://{}:{}".format(*runner.addresses[0][:2]), token="t", namespace=NAMESPACE)
        )
        try:
            yield played, client
        finally:
            await client.close()
    finally:
        await runner.cleanup()
