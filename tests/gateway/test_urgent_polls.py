"""Polls of sidecars for owners: what is an answer, and what is none. test_urgent_crowds.py has those of many at a time."""

from __future__ import annotations

import asyncio

import pytest
from sandlot_gateway.backends.kubernetes import urgent_polls
from sandlot_gateway.data.pool import HttpPool

from tests.gateway.polled import OWNED, Polled, answering, at
from tests.ports import free_port


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is given up because this process gets no time."""
    monkeypatch.setattr(urgent_polls, "_PATIENCE", 3600.0)


# Answers that do not say whether it will have an owner.
UNDECIDED = {
    "being claimed": {"phase": "warm", "claiming": True, "sandbox_id": None},
    "starting again": {"phase": "starting", "sandbox_id": "sb-1"},
}


@pytest.mark.parametrize("first", UNDECIDED)
async def test_one_that_may_have_an_owner_soon_is_asked_again(http_pool: HttpPool, first: str) -> None:
    """The claim that it was applying, or had before its restart, was not found."""
    polled = Polled(pool=http_pool)
    async with answering(UNDECIDED[first], OWNED) as port:
        assert await polled.poll(at(port)) == []
    assert polled.told == [OWNED]


async def test_one_that_starts_and_has_no_owner_has_answered(http_pool: HttpPool) -> None:
    polled = Polled(pool=http_pool)
    async with answering({"phase": "starting", "sandbox_id": None}) as port:
        assert await polled.poll(at(port)) == []
    assert polled.told == []


async def test_one_that_has_listened_and_refuses_is_asked_again(http_pool: HttpPool) -> None:
    """It may be starting again."""
    polled = Polled(pool=http_pool)
    port = free_port()
    polling = asyncio.create_task(polled.poll(at(port)))
    await asyncio.sleep(0.2)
    assert not polling.done()
    async with answering(OWNED, port=port):
        assert await polling == []
    assert polled.told == [OWNED]


async def test_one_that_accepts_and_closes_is_asked_again(http_pool: HttpPool) -> None:
    """It was taken for one that does not listen yet."""
    polled = Polled(pool=http_pool, may_start=True)
    async with answering(OWNED, closes=20) as port:
        assert await polled.poll(at(port)) == []
    assert polled.told == [OWNED]


async def test_one_that_has_not_listened_yet_has_no_owner(http_pool: HttpPool) -> None:
    polled = Polled(pool=http_pool, may_start=True)
    assert await polled.poll(at(free_port())) == []
    assert polled.told == []


async def test_one_that_is_gone_is_not_waited_for(http_pool: HttpPool) -> None:
    polled = Polled(pool=http_pool)
    polling = asyncio.create_task(polled.poll(instance := at(free_port())))
    await asyncio.sleep(0.1)
    polled.gone.add(instance.id)
    assert await polling == []


async def test_a_state_that_cannot_be_handled_ends_no_search(
    http_pool: HttpPool, caplog: pytest.LogCaptureFixture
) -> None:
    """One sidecar that reported such a state kept all creates of a dead gateway waiting for good."""
    polled = Polled(pool=http_pool)
    async with answering({"phase": "odd"}) as odd, answering(OWNED) as port:
        assert await polled.poll(at(odd, 1), at(port, 2)) == []
    assert polled.told == [OWNED]
    assert "i-0000000000000001" in caplog.text
