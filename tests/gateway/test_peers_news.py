"""News to other gateways: all of them get each, but no caller waits for one that lately did not answer."""

from __future__ import annotations

import asyncio

from sandlot_contract.new_ids import new_sandbox_id
from sandlot_gateway.backends.kubernetes.peers import Peers

from tests.gateway.other_gateways import SILENCE, Other, peers_of
from tests.waiting import loop_turns

SANDBOX = new_sandbox_id(0.0)


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
