"""A gateway that lately gave no answer is not asked for keys, whatever call it left unanswered, until it answers one."""

from __future__ import annotations

import asyncio

import pytest
from sandlot_contract.new_ids import new_sandbox_id
from sandlot_gateway.core.owners import KeyAnswer, KeyQuestion

from tests.gateway.other_gateways import SILENCE, Other, peers_of

SANDBOX = new_sandbox_id(0.0)
QUESTION = KeyQuestion("alpha", "key", SANDBOX, "gateway")
NO_HOLDER = KeyAnswer((), all_heard=True)
NOT_ALL_HEARD = KeyAnswer((), all_heard=False)


class Looks:
    """How often sidecars were polled for the last claims of a dead gateway."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> None:
        self.count += 1


def nothing() -> None:
    """Called once news are told."""


@pytest.mark.parametrize("call", ["news", "claims", "whereabouts"])
async def test_one_that_left_another_call_unanswered_is_left_out(others: list[Other], call: str) -> None:
    answers, silent = others
    await answers.start()
    await silent.start()
    silent.answers.clear()
    look = Looks()
    async with peers_of(timeout=SILENCE) as peers:
        if call == "news":
            await peers.tell(b"1", told=nothing)
        elif call == "claims":
            await peers.young_claims("alpha")
        else:
            await peers.whereabouts(SANDBOX)
        assert await peers.holder_of_key(QUESTION, look=look) == NOT_ALL_HEARD
    assert (answers.asked_for_keys, silent.asked_for_keys, look.count) == (1, 0, 0)


async def test_one_that_answers_anything_is_asked_again_at_once(others: list[Other]) -> None:
    answers, silent = others
    await answers.start()
    await silent.start()
    silent.answers.clear()
    look = Looks()
    async with peers_of(timeout=SILENCE) as peers:
        assert await peers.holder_of_key(QUESTION, look=look) == NOT_ALL_HEARD
        silent.answers.set()
        await peers.tell(b"1", told=nothing)
        assert await peers.holder_of_key(QUESTION, look=look) == NO_HOLDER
    assert look.count == 0


async def test_the_last_claims_of_one_that_was_silent_before_it_died_are_looked_for(
    others: list[Other],
) -> None:
    answers, dies = others
    await answers.start()
    await dies.start()
    dies.answers.clear()
    look = Looks()
    async with peers_of(timeout=SILENCE) as peers:
        assert await peers.holder_of_key(QUESTION, look=look) == NOT_ALL_HEARD
        await dies.close()
        await peers.tell(b"1", told=nothing)
        assert await peers.holder_of_key(QUESTION, look=look) == NO_HOLDER
        assert look.count == 1
        assert await peers.holder_of_key(QUESTION, look=look) == NO_HOLDER
        assert look.count == 1, "they were looked for twice"


async def test_no_key_is_free_before_the_last_claims_of_a_dead_one_are_known(others: list[Other]) -> None:
    await others[0].start()
    looking: asyncio.Queue[None] = asyncio.Queue()
    found = asyncio.Event()

    async def look() -> None:
        looking.put_nowait(None)
        await found.wait()

    async with peers_of(timeout=20.0) as peers:
        asked: list[asyncio.Task[KeyAnswer]] = []
        for _ in range(2):
            asked.append(asyncio.create_task(peers.holder_of_key(QUESTION, look=look)))
            await looking.get()
        assert not any(one.done() for one in asked)
        found.set()
        assert [await one for one in asked] == [NO_HOLDER] * 2
