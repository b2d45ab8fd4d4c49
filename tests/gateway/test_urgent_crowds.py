"""Polls of many sidecars for owners at a time: none holds up another, and searches share them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from sandlot_gateway.backends.kubernetes import urgent_polls
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.data.pool import HttpPool

from tests.gateway.polled import OWNED, WARM, Crowd, Polled, answering, at
from tests.waiting import until


@pytest.fixture
def few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """For 4 polls at once, and 4 slow ones beside them."""
    monkeypatch.setattr(urgent_polls, "_AT_ONCE", 4)
    monkeypatch.setattr(urgent_polls, "_SLOW", 4)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is given up because this process gets no time."""
    monkeypatch.setattr(urgent_polls, "_PATIENCE", 3600.0)


@pytest.fixture
def none_is_slow(patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """All in flight keep their places until they are answered."""
    monkeypatch.setattr(urgent_polls, "_BRIEF", 3600.0)


@pytest.fixture
def silent() -> Iterator[list[Instance]]:
    """40 that accept connections, and never answer."""
    with closing(socket.create_server(("0.0.0.0", 0), backlog=1024)) as listener:
        port = listener.getsockname()[1]
        yield [at(port, number, host=f"127.0.1.{number}") for number in range(1, 41)]


@pytest.mark.usefixtures("few_places", "patient")
async def test_silent_ones_hold_up_nobody(http_pool: HttpPool, silent: list[Instance]) -> None:
    """Those behind them were asked half a minute later, when the create that waits for them had gone on."""
    polled = Polled(pool=http_pool)
    async with answering(OWNED) as port:
        polling = asyncio.create_task(polled.poll(*silent, at(port)))
        await until(lambda: polled.told)
        assert not polling.done()
        await polled.close()
        assert await polling == silent
    assert polled.told == [OWNED]


@pytest.mark.usefixtures("few_places")
async def test_the_time_that_silent_ones_take_does_not_add_up(
    http_pool: HttpPool, silent: list[Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(urgent_polls, "_PATIENCE", 5.0)
    polled = Polled(pool=http_pool)
    began = asyncio.get_running_loop().time()
    assert await polled.poll(*silent) == silent
    assert asyncio.get_running_loop().time() - began < 25.0, "5 s for every 4 of them"


@pytest.mark.usefixtures("few_places", "patient")
async def test_a_slow_one_is_heard_while_others_wait_for_places(
    http_pool: HttpPool, silent: list[Instance]
) -> None:
    polled = Polled(pool=http_pool)
    async with answering(OWNED, after=1.0) as port:
        polling = asyncio.create_task(polled.poll(at(port), *silent))
        await until(lambda: polled.told)
        await polled.close()
        assert await polling == silent
    assert polled.told == [OWNED]


@pytest.mark.usefixtures("few_places")
async def test_one_without_an_address_takes_no_place_and_is_asked_once_it_has_one(
    http_pool: HttpPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was looked up by name, and those that could be asked waited for them."""
    monkeypatch.setattr(urgent_polls, "_PATIENCE", 10.0)
    polled = Polled(pool=http_pool)
    async with Crowd().serving() as crowd, answering(WARM) as port, answering(OWNED) as later:
        nowhere = [at(crowd.port, number) for number in range(1, 20)]
        polled.unplaced |= {one.id for one in nowhere}
        polling = asyncio.create_task(polled.poll(*nowhere, at(port)))
        await until(lambda: polled.told)
        nowhere[0].address = f"127.0.0.1:{later}"
        polled.unplaced.discard(nowhere[0].id)
        assert await polling == nowhere[1:]
        assert not crowd.asked
    assert polled.told == [WARM, OWNED]


@pytest.mark.usefixtures("patient")
async def test_few_are_asked_at_a_time_by_all_searches(http_pool: HttpPool) -> None:
    """All sidecars of a cluster were, each on a connection of its own, by each search."""
    polled = Polled(pool=http_pool)
    async with Crowd().serving() as crowd:
        crowd.free.set()
        searches = [polled.poll(*(at(crowd.port, 200 * one + each) for each in range(200))) for one in (0, 1)]
        assert await asyncio.gather(*searches) == [[], []]
    assert len(polled.told) == 400
    assert 1 < crowd.most <= urgent_polls._AT_ONCE + urgent_polls._SLOW


@pytest.mark.usefixtures("few_places", "none_is_slow")
async def test_searches_share_the_polls_that_had_not_been_sent(http_pool: HttpPool) -> None:
    """Each dead gateway had every sidecar polled anew. An answer that was on its way may be older than the claim."""
    polled = Polled(pool=http_pool)
    async with Crowd().serving() as crowd:
        instances = [at(crowd.port, number) for number in range(100)]
        first = asyncio.create_task(polled.poll(*instances))
        await until(lambda: crowd.asked == 4)
        others = [asyncio.create_task(polled.poll(*instances)) for _ in range(2)]
        await asyncio.sleep(0)
        others.pop().cancel()
        crowd.free.set()
        assert (await first, await others[0]) == ([], [])
    assert len(polled.told) == 104
    assert 104 <= crowd.asked < 150


@pytest.mark.usefixtures("few_places", "none_is_slow")
async def test_a_search_that_is_given_up_is_polled_no_further(http_pool: HttpPool) -> None:
    polled = Polled(pool=http_pool)
    async with Crowd().serving() as crowd:
        polling = asyncio.create_task(polled.poll(*(at(crowd.port, number) for number in range(200))))
        await until(lambda: crowd.asked >= 2)
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
        crowd.free.set()
        assert await polled.poll(at(crowd.port, 199)) == []
        assert crowd.asked < 20
    assert len(polled.told) == 1


async def test_none_begins_after_the_end(http_pool: HttpPool, silent: list[Instance]) -> None:
    """It went on for as long as the process did."""
    polled = Polled(pool=http_pool)
    polling = asyncio.create_task(polled.poll(*silent))
    await asyncio.sleep(0)
    await polled.close()
    assert await polling == silent
    async with answering(OWNED) as port:
        assert await polled.poll(at(port)) == []
    assert polled.told == []
