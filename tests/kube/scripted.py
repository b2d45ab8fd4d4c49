"""An API server that says what a test tells it to: real HTTP, answers from a script."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from sandlot_kube.access import Access
from sandlot_kube.client import KubeClient

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Scripted:
    """`lists` and `watches` are used up one a request; the last watch stays open. All requests are kept."""

    def __init__(self) -> None:
        self.lists: list[Answer] = []
        self.watches: list[Answer] = []
        self.requests: list[web.Request] = []
        self.asked = asyncio.Event()  # set by every request
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.asked.set()
        if request.query.get("watch"):
            return await (self.watches.pop(0) if self.watches else stay_open())(request)
        return await self.lists.pop(0)(request)

    def queries(self, *, watch: bool) -> list[dict[str, str]]:
        return [dict(r.query) for r in self.requests if bool(r.query.get("watch")) is watch]


@asynccontextmanager
async def scripted(listener: socket.socket | None = None) -> AsyncIterator[tuple[Scripted, KubeClient]]:
    """`listener`: where it listens, in another network namespace say; None: on loopback."""
    script = Scripted()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.SockSite(runner, listener or socket.create_server(("127.0.0.1", 0)))
    await site.start()
    host, port = runner.addresses[0][:2]
    script.url = f"http://{host}:{port}"
    client = KubeClient(Access(script.url))
    try:
        yield script, client
    finally:
        await client.close()
        await runner.cleanup()


def pod(name: str, version: int, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "status": status}


def event(kind: str, item: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


def listed(*items: dict[str, Any], version: int, go_on: str = "") -> Answer:
    metadata = {"resourceVersion": str(version), "continue": go_on}
    return answered(200, {"metadata": metadata, "items": list(items)})


def answered(status: int, body: Any, headers: dict[str, str] | None = None) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return answer


def failed(status: int, reason: str) -> Answer:
    return answered(
        status, {"kind": "Status", "code": status, "reason": reason, "message": f"it is {reason}"}
    )


def streamed(*pieces: bytes, cut: bool = False, stay: bool = False) -> Answer:
    """A watch of these bytes, which then ends; `cut`: its connection is reset, `stay`: nothing more comes."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if stay:
            await asyncio.Event().wait()
        if cut and request.transport is not None:
            request.transport.abort()
        return response

    return answer


def stay_open() -> Answer:
    return streamed(stay=True)
