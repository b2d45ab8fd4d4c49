"""The last claims of a dead gateway are looked for at the sidecars, once, and no key is free before they are known."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.key_questions import (
    NO_HOLDER,
    NOT_ALL_HEARD,
    QUESTION,
    SEARCHING,
    Looks,
    answering_and_silent,
    long_counts,
    nothing,
)
from tests.gateway.other_gateways import Other, peers_of

__all__ = ["long_counts"]


async def test_the_last_claims_of_one_that_was_silent_before_it_died_are_looked_for(
    others: list[Other],
) -> None:
    _, dies = await answering_and_silent(others)
    look = Looks()
    async with peers_of() as peers:
        assert await peers.holder_of_key(QUESTION, look=look) == NOT_ALL_HEARD
        await dies.close()
        await peers.tell(b"1", told=nothing)
        assert await peers.holder_of_key(QUESTION, look=look) == NO_HOLDER
        assert look.count == 1
        assert await peers.holder_of_key(QUESTION, look=look) == NO_HOLDER
        assert look.count == 1, "they were looked for twice"


class Search:
    """Polls of sidecars that take as long as a test says."""

    def __init__(self) -> None:
        self.count = 0
        self.began = asyncio.Event()
        self.is_over = asyncio.Event()

    async def __call__(self) -> None:
        self.count += 1
        self.began.set()
        await self.is_over.wait()


async def test_no_key_is_free_before_the_last_claims_of_a_dead_one_are_known(others: list[Other]) -> None:
    await others[0].start()
    search = Search()
    async with peers_of() as peers:
        asked = [asyncio.create_task(peers.holder_of_key(QUESTION, look=search)) for _ in range(2)]
        await search.began.wait()
        assert not any(one.done() for one in asked)
        search.is_over.set()
        assert [await one for one in asked] == [NO_HOLDER] * 2
    assert search.count == 1


async def test_a_dead_one_counts_as_silent_while_a_sidecar_has_not_answered(others: list[Other]) -> None:
    """The sandbox was claimed again by a gateway that followed its create, and its first instance ended in use."""
    await others[0].start()
    search = Search()
    async with peers_of(searched=0.2) as peers:
        assert await peers.holder_of_key(QUESTION, look=search) == SEARCHING
        assert peers.is_searching()
        search.is_over.set()
        assert await peers.holder_of_key(QUESTION, look=search) == NO_HOLDER
        assert not peers.is_searching()
    assert search.count == 1


async def test_one_whose_address_vanished_counts_as_silent_just_so(
    others: list[Other], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandlot_gateway.backends.kubernetes.peers._KEPT", 0.0)
    answers, dies = others
    await answers.start()
    await dies.start()
    search = Search()
    async with peers_of(searched=0.2) as peers:
        assert await peers.holder_of_key(QUESTION, look=search) == NO_HOLDER
        others.remove(dies)
        await dies.close()
        assert await peers.holder_of_key(QUESTION, look=search) == SEARCHING
        assert peers.is_searching()
        search.is_over.set()
        assert await peers.holder_of_key(QUESTION, look=search) == NO_HOLDER
        assert not peers.is_searching()
    assert search.count == 1


async def test_one_that_may_have_come_back_and_died_again_is_searched_again(
    others: list[Other], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had claimed in between was taken for free, since nobody had called it meanwhile."""
    monkeypatch.setattr("sandlot_gateway.backends.kubernetes.search._COUNTS", 0.0)
    await others[0].start()
    look = Looks()
    async with peers_of() as peers:
        for count in (1, 2):
            assert await peers.holder_of_key(QUESTION, look=look) == NO_HOLDER
            assert look.count == count


async def test_one_that_has_begun_since_is_searched_again_when_it_dies(others: list[Other]) -> None:
    """A search from before its comeback counted, and what it had claimed in between was taken for free."""
    await others[0].start()
    look = Looks()
    async with peers_of() as peers:
        for gateway, count in [("a", 1), ("a", 1), ("b", 2), ("a", 2)]:
            peers.asked_by(gateway)
            assert await peers.holder_of_key(QUESTION, look=look) == NO_HOLDER
            assert look.count == count


@pytest.mark.parametrize("how", ["answers", "asks first", "is silent", "is silent, asks first", "starts"])
async def test_one_that_comes_back_ends_no_search(others: list[Other], how: str) -> None:
    """It does not know what the sidecars that are being polled have not told it, or is starting.

    While it was starting, a new create with its key had a second sandbox.
    """
    answers, back = others
    await answers.start()
    search = Search()
    async with peers_of(searched=0.2) as peers:
        assert await peers.holder_of_key(QUESTION, look=search) == SEARCHING
        await back.start()
        if "silent" in how:
            back.fall_silent()
        back.starts = how == "starts"
        if "asks first" in how:
            peers.asked_by("it")
        for _ in range(2):
            assert await peers.holder_of_key(QUESTION, look=search) == SEARCHING
        search.is_over.set()
        searched = NO_HOLDER if how in ("answers", "asks first") else NOT_ALL_HEARD
        assert await peers.holder_of_key(QUESTION, look=search) == searched
        count = search.count
        assert await peers.holder_of_key(QUESTION, look=search) == searched
    assert search.count == count == (2 if "asks first" in how else 1)


async def test_the_last_claims_of_one_that_starts_are_looked_for(others: list[Other]) -> None:
    """It was taken for a silent one if nobody had asked it anything while it was dead, and its claims for free keys."""
    answers, starts = others
    await answers.start()
    starts.starts = True
    await starts.start()
    look = Looks()
    async with peers_of() as peers:
        for _ in range(2):
            assert await peers.holder_of_key(QUESTION, look=look) == NOT_ALL_HEARD
            assert look.count == 1
        starts.starts = False
        assert await peers.holder_of_key(QUESTION, look=look) == NO_HOLDER
    assert look.count == 1


async def test_a_search_that_fails_is_begun_again(
    others: list[Other], caplog: pytest.LogCaptureFixture
) -> None:
    """Each question failed as it had, for as long as the gateway was dead."""
    await others[0].start()
    look = Looks()

    async def fail() -> None:
        await look()
        raise OSError("no more files")

    async with peers_of() as peers:
        for count in (1, 2):
            assert await peers.holder_of_key(QUESTION, look=fail) == SEARCHING
            assert look.count == count
        assert await peers.holder_of_key(QUESTION, look=look) == NO_HOLDER
    assert "no more files" in caplog.text


async def test_a_search_that_is_cancelled_cancels_nobody_who_waits_for_it(others: list[Other]) -> None:
    await others[0].start()
    search = Search()
    async with peers_of() as peers:
        asked = asyncio.create_task(peers.holder_of_key(QUESTION, look=search))
        await search.began.wait()
        await peers.close()
        assert await asked == SEARCHING
