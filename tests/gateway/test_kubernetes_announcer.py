"""News for other gateways: in requests that these accept, whatever the news say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_gateway.backends.kubernetes.announcer import Announcer
from sandlot_gateway.core.owners import RecordedEnd

from tests.waiting import loop_turns, until

ACCEPTED = 10_000  # bytes


class Others:
    """Of them only what they were sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()
        self.late_answer = asyncio.Event()  # of one that did not answer the last time
        self.late_answer.set()

    async def tell(self, body: bytes, *, told: Callable[[], None]) -> None:
        self.bodies.append(body)
        self.asked.set()
        await self.answer.wait()
        told()
        await self.late_answer.wait()

    def told(self, kind: str) -> list[Any]:
        return [one for body in self.bodies for one in json.loads(body)[kind]]


@pytest.fixture
async def others() -> Others:
    return Others()


@pytest.fixture
def announcer(others: Others) -> Announcer:
    peers: Any = others
    return Announcer(peers=peers, max_body=ACCEPTED)


def end(number: int, *, size: int = 0) -> RecordedEnd:
    return RecordedEnd(
        SandboxId(f"sb-{number}"),
        verdict="deleted",
        message=None,
        exit_code=None,
        of_pending_create=False,
        request={"labels": ["x" * size]},
    )


async def test_a_burst_of_news_goes_in_one_request(announcer: Announcer, others: Others) -> None:
    others.answer.set()
    for number in range(20):
        announcer.ended(InstanceId("i-0"), number, end(number))
        announcer.reset({"instance_id": "i-0", "generation": number + 1, "proof": "long"})
    assert others.bodies == []
    await until(lambda: others.bodies)  # by itself
    assert len(others.bodies) == 1
    assert [one["generation"] for one in others.told("ends")] == list(range(20))
    assert others.told("states")[0] == {"instance_id": "i-0", "generation": 1}
    await announcer.close(timeout=60)
    assert len(others.bodies) == 1


async def test_who_waits_for_an_end_has_it_sent_and_waits_for_the_others(
    announcer: Announcer, others: Others
) -> None:
    announcer.ended(InstanceId("i-0"), 1, end(1))
    waiting = asyncio.create_task(announcer.told([SandboxId("sb-1"), SandboxId("sb-unknown")], timeout=60))
    await others.asked.wait()
    assert [one["end"]["sandbox_id"] for one in others.told("ends")] == ["sb-1"]
    await loop_turns(3)
    assert not waiting.done()
    others.answer.set()
    await waiting
    await announcer.told([SandboxId("sb-1")], timeout=60)  # they know it already


async def test_silent_gateways_are_not_waited_for_beyond_the_time(
    announcer: Announcer, others: Others
) -> None:
    announcer.ended(InstanceId("i-0"), 1, end(1))
    await announcer.told([SandboxId("sb-1")], timeout=0.01)
    assert len(others.told("ends")) == 1
    others.answer.set()


async def test_one_that_does_not_answer_is_not_waited_for(announcer: Announcer, others: Others) -> None:
    others.answer.set()
    others.late_answer.clear()
    announcer.ended(InstanceId("i-0"), 1, end(1))
    async with asyncio.timeout(30):
        await announcer.told([SandboxId("sb-1")], timeout=3600.0)
    others.late_answer.set()
    await announcer.close(timeout=60)


async def test_no_request_is_larger_than_the_others_accept(announcer: Announcer, others: Others) -> None:
    others.answer.set()
    for number in range(60):
        announcer.ended(InstanceId("i-0"), number, end(number, size=number * 50))
        announcer.reset({"instance_id": "i-0", "generation": number + 1})
    await announcer.close(timeout=60)
    assert max(map(len, others.bodies)) <= ACCEPTED
    assert [one["generation"] for one in others.told("ends")] == list(range(60))
    assert all(one["end"]["request"] for one in others.told("ends"))
    assert len(others.told("states")) == 60


async def test_an_end_with_a_large_request_is_told_without_it(announcer: Announcer, others: Others) -> None:
    others.answer.set()
    announcer.ended(InstanceId("i-0"), 1, end(1))
    announcer.ended(InstanceId("i-1"), 1, end(2, size=ACCEPTED))
    await announcer.close(timeout=60)
    assert max(map(len, others.bodies)) <= ACCEPTED
    told = {one["end"]["sandbox_id"]: one["end"]["request"] for one in others.told("ends")}
    assert told == {"sb-1": {"labels": [""]}, "sb-2": None}
