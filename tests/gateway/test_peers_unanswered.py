"""A gateway that left a question of keys unanswered gets no others for a moment, unless it answers or refuses a call."""

from __future__ import annotations

import asyncio

import pytest
from sandlot_contract.new_ids import new_sandbox_id
from sandlot_gateway.backends.kubernetes.peer_calls import Missing
from sandlot_gateway.core.owners import KeyAnswer, KeyHolder, KeyQuestion

from tests.gateway.other_gateways import Other, peers_of

SANDBOX = new_sandbox_id(0.0)
QUESTION = KeyQuestion("alpha", "key", SANDBOX, "gateway")
HOLDER = KeyHolder(new_sandbox_id(0.0))
NO_HOLDER = KeyAnswer((), all_heard=True)
NOT_ALL_HEARD = KeyAnswer((), all_heard=False)
SEARCHING = KeyAnswer((), all_heard=False, searching=True)


@pytest.fixture(autouse=True)
def long_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search does, for longer than a test takes."""
    monkeypatch.setattr("sandlot_gateway.backends.kubernetes.search._COUNTS", 3600.0)


class Looks:
    """How often sidecars were polled for the last claims of a dead gateway."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> None:
        self.count += 1


def nothing() -> None:
    """Ignore that the news are told."""


async def answering_and_silent(others: list[Other]) -> tuple[Other, Other]:
    answers, silent = others
    await answers.start()
    await silent.start()
    silent.fall_silent()
    return answers, silent


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
