"""The other gateways of a `Peers`, as servers that answer calls while a test lets them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler
from sandlot_gateway.backends.kubernetes.peers import Peers, PeerSettings
from sandlot_gateway.core.owners import STARTING, KeyHolder
from sandlot_gateway.credentials import KEYS_PATH, NEWS_PATH
from sandlot_gateway.data.pool import HttpPool

from tests.ports import free_port

SILENCE = 3.0  # seconds after which a gateway counts as silent, where a test waits for that


class Other:
    """A gateway that gets news and questions. It answers those of keys while `answers_keys` is set, else `answers`."""

    def __init__(self, port: int) -> None:
        self.news: list[bytes] = []
        self.asked_for_keys = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.answers_keys = asyncio.Event()
        self.answers_keys.set()
        # It breaks connections instead, and is silent in no time: none waits in vain, or gives up what is slow.
        self.breaks = self.breaks_keys = False
        self.was_asked = asyncio.Event()  # for a key
        self.holder: KeyHolder | None = None  # of any key
        self.starts = False  # and answers no question of keys yet, but that it does
        self.proxy_says = b""  # in its place
        self.address = f"127.0.0.1:{port}"
        self._port = port
        self._runner: web.AppRunner | None = None

    def fall_silent(self) -> None:
        self.breaks = self.breaks_keys = True

    async def start(self) -> None:
        app = web.Application(middlewares=[self._proxied])
        app.add_routes(
            [
                web.post(NEWS_PATH, self._told),
                web.get(KEYS_PATH, self._asked_for_a_key),
                web.get("/{path:.*}", self._asked),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    @web.middleware
    async def _proxied(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self.proxy_says:
            return web.Response(status=503, body=self.proxy_says)
        return await handler(request)

    async def _told(self, request: web.Request) -> web.Response:
        self.news.append(await request.read())
        await self.answers.wait()
        _break(request, self.breaks)
        return web.Response(status=204)

    async def _asked_for_a_key(self, request: web.Request) -> web.Response:
        self.asked_for_keys += 1
        self.was_asked.set()
        await self.answers_keys.wait()
        _break(request, self.breaks_keys)
        if self.starts:
            return web.json_response({**STARTING}, status=503)
        return web.json_response({"holder": None if self.holder is None else asdict(self.holder)})

    async def _asked(self, request: web.Request) -> web.Response:
        await self.answers.wait()
        _break(request, self.breaks)
        return web.Response(status=404)

    async def close(self) -> None:
        self.answers.set()
        self.answers_keys.set()
        if self._runner is not None:
            await self._runner.cleanup()


def _break(request: web.Request, breaks: bool) -> None:
    if breaks and request.transport is not None:
        request.transport.abort()


@pytest.fixture
async def others(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Other]]:
    """Two; none of them has started."""
    others = [Other(free_port()), Other(free_port())]

    async def found(host: str, port: int) -> list[str]:
        return [one.address for one in others]

    monkeypatch.setattr("sandlot_gateway.backends.kubernetes.peers.addresses_of", found)
    yield others
    for one in others:
        await one.close()


@asynccontextmanager
async def peers_of(*, timeout: float = 60.0, searched: float = 60.0) -> AsyncIterator[Peers]:
    pool = HttpPool()
    settings = PeerSettings("gateways:1", own_port=1, timeout=timeout, searched=searched, left_out=3600.0)
    peers = Peers(settings, pool=pool, token=lambda: "spt_0")
    try:
        yield peers
    finally:
        await peers.close()
        await pool.close()
