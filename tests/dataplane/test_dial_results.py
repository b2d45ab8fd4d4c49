"""How the queues of the upstreams count attempts that fail: as refused only where polls alone wait for what starts."""

from __future__ import annotations

import asyncio

import pytest
from sandlot_gateway.data.errors import DialError

from tests.dataplane.queue_owner import Script, refused
from tests.waiting import until


async def test_a_refusal_is_no_failure_for_one_that_polls_what_starts(owner) -> None:
    one = owner(refused_for_others=0.02)
    with pytest.raises(DialError):
        await one.wait(Script(refused()), known_alive=False, starting=True)
    assert len(one.dialled) > 1
    assert {*one.dialled} == {"refused"}


@pytest.mark.parametrize(
    "reason", ["TLS: it has expired", "the peer closed the connection before it was used"]
)
async def test_what_the_kernel_did_not_refuse_is_a_failure_of_a_poll(owner, reason: str) -> None:
    one = owner(refused_for_others=0.02)
    with pytest.raises(DialError, match=reason):
        await one.wait(Script(DialError("a", reason, refused=True)), known_alive=False, starting=True)
    assert {*one.dialled} == {"failed"}


async def test_a_refusal_is_a_failure_if_another_than_a_poll_waits(owner) -> None:
    one = owner(refused_for_others=60.0)
    script = Script(refused())
    waiting = [one.wait(script, known_alive=False, starting=starting) for starting in (True, False)]
    await until(lambda: len(one.dialled) > 2)
    assert {*one.dialled} == {"failed"}
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
