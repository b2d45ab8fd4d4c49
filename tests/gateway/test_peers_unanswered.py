"""A gateway that left a question of keys unanswered gets no others for a moment, unless it answers or refuses a call."""

from __future__ import annotations

import asyncio

import pytest
from sandlot_gateway.backends.kubernetes.peer_calls import Missing
from sandlot_gateway.core.owners import KeyAnswer

from tests.gateway.key_questions import (
    HOLDER,
    NO_HOLDER,
    NOT_ALL_HEARD,
    QUESTION,
    SANDBOX,
    Looks,
    answering_and_silent,
    long_counts,
    nothing,
)
from tests.gateway.other_gateways import Other, peers_of

__all__ = ["long_counts"]


@pytest.mark.parametrize("call", ["news", "claims", "whereabouts"])
async def test_one_that_left_another_call_unanswered_is_asked(others: list[Other], call: str) -> None:
    """Its holder of the key would not be heard of, and a second sandbox made for the key."""
    _, slow = await answering_and_silent(others)
    slow.holder = HOLDER
    async with peers_of() as peers:
        if call == "news":
            await peers.tell(b"1", told=nothing)
        elif call == "claims":
            await peers.young_claims("alpha")
        else:
            await peers.whereabouts(SANDBOX)
        slow.breaks_keys = False
        assert await peers.holder_of_key(QUESTION, look=Looks()) == KeyAnswer((HOLDER,), all_heard=True)


async def test_one_that_left_a_question_of_keys_unanswered_is_left_out(others: list[Other]) -> None:
    answers, silent = await answering_and_silent(others)
    look = Looks()
    async with peers_of() as peers:
        assert await peers.holder_of_key(QUESTION, look=look) == NOT_ALL_HEARD
        asked = silent.asked_for_keys
        assert await peers.holder_of_key(QUESTION, look=look) == NOT_ALL_HEARD
    assert (answers.asked_for_keys, silent.asked_for_keys, look.count) == (2, asked, 0)


@pytest.mark.parametrize("call", ["news", "a question of keys"])
async def test_one_that_refused_a_connection_is_asked_again_at_once(others: list[Other], call: str) -> None:
    """It may have started since."""
    answers, starts = others
    await answers.start()
    starts.holder = HOLDER
    async with peers_of() as peers:
        if call == "news":
            await peers.tell(b"1", told=nothing)
        else:
            assert await peers.holder_of_key(QUESTION, look=Looks()) == NO_HOLDER
        await starts.start()
        assert await peers.holder_of_key(QUESTION, look=Looks()) == KeyAnswer((HOLDER,), all_heard=True)


async def test_the_late_silence_of_an_older_call_undoes_no_answer(others: list[Other]) -> None:
    _, silent = await answering_and_silent(others)
    silent.breaks = False
    silent.answers_keys.clear()
    async with peers_of() as peers:
        older = asyncio.create_task(peers.holder_of_key(QUESTION, look=Looks()))
        await silent.was_asked.wait()
        await peers.tell(b"1", told=nothing)
        silent.answers_keys.set()
        assert await older == NOT_ALL_HEARD
        silent.breaks_keys = False
        assert await peers.holder_of_key(QUESTION, look=Looks()) == NO_HOLDER


async def test_one_that_answers_anything_is_asked_again_at_once(others: list[Other]) -> None:
    _, silent = await answering_and_silent(others)
    look = Looks()
    async with peers_of() as peers:
        assert await peers.holder_of_key(QUESTION, look=look) == NOT_ALL_HEARD
        silent.breaks = silent.breaks_keys = False
        await peers.tell(b"1", told=nothing)
        assert await peers.holder_of_key(QUESTION, look=look) == NO_HOLDER
    assert look.count == 0


async def test_one_that_has_just_begun_is_known_once_it_has_asked(others: list[Other]) -> None:
    """It vanished unnoticed if it died before its address was looked up, and what it had claimed was taken for free."""
    answers, begins = others
    await answers.start()
    others.remove(begins)
    async with peers_of() as peers:
        await peers.tell(b"1", told=nothing)
        await begins.start()
        others.append(begins)
        peers.asked_by("it")
        await peers.tell(b"2", told=nothing)
    assert begins.news == [b"2"]


@pytest.mark.parametrize(
    "said", [b"upstream connect error", b'"\xe9"', b"[" * 100_000], ids=["text", "latin-1", "nested"]
)
async def test_the_503_of_a_proxy_is_no_answer(others: list[Other], said: bytes) -> None:
    """It is not JSON: each call of any gateway raised."""
    answers, dead = others
    answers.holder = HOLDER
    dead.proxy_says = said
    await answers.start()
    await dead.start()
    async with peers_of() as peers:
        is_told = asyncio.Event()
        await peers.tell(b"1", told=is_told.set)
        assert is_told.is_set()
        assert answers.news == [b"1"]
        assert await peers.young_claims("alpha") == {}
        assert await peers.whereabouts(SANDBOX) is Missing.SILENT
        assert await peers.holder_of_key(QUESTION, look=Looks()) == KeyAnswer((HOLDER,), all_heard=False)
