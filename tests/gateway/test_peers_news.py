"""News to other gateways: all of them get each, but no caller waits for one that lately did not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from sandlot_contract.new_ids import new_sandbox_id
from sandlot_gateway.backends.kubernetes.peers import Peers, PeerSettings
from sandlot_gateway.credentials import NEWS_PATH
from sandlot_gateway.data.pool import HttpPool

from tests.ports import free_port
from tests.waiting import loop_turns

SANDBOX = new_sandbox_id(0.0)
SILENCE = 1.0  # seconds after which a gateway counts as silent, where a test waits for that


class Other:
    """A gateway that gets news, and answers them while `answers` is set."""

    def __init__(self, port: int) -> None:
        self.news: list[bytes] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.address = f"127.0.0.1:{port}"
        self._port = port
        app = web.Application()
        app.add_routes([web.post(NEWS_PATH, self._told), web.get("/{path:.*}", self._asked)])
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def _told(self, request: web.Request) -> web.Response:
        self.news.append(await request.read())
        await self.answers.wait()
        return web.Response(status=204)

    async def _asked(self, request: web.Request) -> web.Response:
        await self.answers.wait()
        return web.Response(status=404)

    async def close(self) -> None:
        self.answers.set()
        await self._runner.cleanup()


@pytest.fixture
async def others(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Other]]:
    others = [Other(free_port()), Other(free_port())]

    async def found(host: str, port: int) -> list[str]:
        return [one.address for one in others]

    monkeypatch.setattr("sandlot_gateway.backends.kubernetes.peers.addresses_of", found)
    yield others
    for one in others:
        await one.close()


@asynccontextmanager
async def peers_of(*, timeout: float) -> AsyncIterator[Peers]:
    pool = HttpPool()
    peers = Peers(PeerSettings("gateways:1", own_port=1, timeout=timeout), pool=pool, token="spt_0")
    yield peers
    await peers.close()
    await pool.close()


async def begin(peers: Peers, news: bytes) -> asyncio.Task[None]:
    """Tell the news; return the task once they count as told."""
    told = asyncio.Event()
    telling = asyncio.create_task(peers.tell(news, told=told.set))
    async with asyncio.timeout(30):
        await told.wait()
    return telling


async def tell_all(peers: Peers, news: bytes) -> None:
    """Tell the news, which count as told once nothing is left to wait for."""
    telling = await begin(peers, news)
    await loop_turns(10)
    assert telling.done(), "they counted as told before each gateway had answered or had its time"
    await telling


async def tell_without_a_wait(peers: Peers, news: bytes) -> None:
    """Tell the news, which count as told before the silent one has had its time."""
    telling = await begin(peers, news)
    assert not telling.done(), "it waited for the silent one"
    await telling


async def test_one_that_lately_was_silent_gets_its_news_without_a_wait(others: list[Other]) -> None:
    answers, silent = others
    await answers.start()
    await silent.start()
    silent.answers.clear()
    async with peers_of(timeout=SILENCE) as peers:
        await tell_all(peers, b"1")
        await tell_without_a_wait(peers, b"2")
    assert answers.news == silent.news == [b"1", b"2"]


async def test_one_that_answers_again_is_waited_for_again(others: list[Other]) -> None:
    answers, starting = others
    await answers.start()
    async with peers_of(timeout=60) as peers:
        await tell_all(peers, b"1")  # it refuses connections
        await starting.start()
        starting.answers.clear()
        telling = await begin(peers, b"2")
        assert not telling.done(), "it waited for the one that starts"
        starting.answers.set()
        await telling
        await tell_all(peers, b"3")
    assert answers.news == [b"1", b"2", b"3"]
    assert starting.news == [b"2", b"3"]


async def test_one_that_a_question_found_silent_is_not_waited_for(others: list[Other]) -> None:
    answers, starting = others
    await answers.start()
    async with peers_of(timeout=60) as peers:
        await peers.young_claims("alpha")
        await starting.start()
        starting.answers.clear()
        telling = await begin(peers, b"1")
        assert not telling.done(), "it waited for the one that starts"
        starting.answers.set()
        await telling
    assert answers.news == starting.news == [b"1"]


async def test_one_that_was_silent_about_a_sandbox_is_not_waited_for(others: list[Other]) -> None:
    answers, silent = others
    await answers.start()
    await silent.start()
    silent.answers.clear()
    async with peers_of(timeout=SILENCE) as peers:
        await peers.end_of(SANDBOX)
        await tell_without_a_wait(peers, b"1")
    assert answers.news == silent.news == [b"1"]
