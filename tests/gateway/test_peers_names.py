"""The other gateways' name cannot be resolved, so that they cannot be asked: no answer counts as theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sandlot_contract.ids import SandboxId
from sandlot_gateway.backends.kubernetes.peer_calls import Missing
from sandlot_gateway.backends.kubernetes.peers import Peers, PeerSettings
from sandlot_gateway.core.owners import KeyQuestion
from sandlot_gateway.core.runs import RunId
from sandlot_gateway.data.pool import HttpPool

from tests.ports import free_port

SANDBOX = SandboxId("sb-0")
QUESTION = KeyQuestion("t", "key", SANDBOX, "gateway")
UNKNOWN = "no-such-name.invalid.:8642"


@pytest.fixture
async def pool() -> AsyncIterator[HttpPool]:
    pool = HttpPool()
    yield pool
    await pool.close()


async def no_look() -> None:
    raise AssertionError("no gateway has died")


async def test_no_question_after_a_failed_look_up_counts_as_denied(pool: HttpPool) -> None:
    peers = Peers(PeerSettings(UNKNOWN, own_port=1, timeout=20.0), pool=pool, token=lambda: "spt_0")
    assert [await peers.whereabouts(SANDBOX) for _ in range(3)] == [Missing.SILENT] * 3


async def test_no_key_is_free_after_a_failed_look_up(pool: HttpPool) -> None:
    peers = Peers(PeerSettings(UNKNOWN, own_port=1), pool=pool, token=lambda: "spt_0")
    answers = [await peers.holder_of_key(QUESTION, look=no_look) for _ in range(3)]
    assert [(answer.holders, answer.all_heard) for answer in answers] == [((), False)] * 3


async def test_a_run_lacks_counts_after_a_failed_look_up(pool: HttpPool) -> None:
    peers = Peers(PeerSettings(UNKNOWN, own_port=1, timeout=20.0), pool=pool, token=lambda: "spt_0")
    assert [await peers.run_counts("t", RunId("r")) for _ in range(2)] == [[None]] * 2


async def test_where_the_name_fails_the_api_server_is_asked(pool: HttpPool) -> None:
    dead = f"127.0.0.1:{free_port()}"

    async def endpoints() -> list[str]:
        return [dead]

    async def look() -> None:
        """As after the death of a gateway: the one that was told refuses connections."""

    settings = PeerSettings(UNKNOWN, own_port=1, timeout=20.0)
    peers = Peers(settings, pool=pool, token=lambda: "spt_0", endpoints=endpoints)
    assert await peers.whereabouts(SANDBOX) is Missing.DEAD
    assert (await peers.holder_of_key(QUESTION, look=look)).all_heard


async def test_a_look_up_outlives_the_question_that_began_it(pool: HttpPool) -> None:
    peers = Peers(
        PeerSettings(f"localhost:{free_port()}", own_port=1, timeout=20.0), pool=pool, token=lambda: "spt_0"
    )
    question = asyncio.create_task(peers.whereabouts(SANDBOX))
    await asyncio.sleep(0)  # it waits for the resolver
    question.cancel()
    with pytest.raises(asyncio.CancelledError):
        await question
    assert await peers.whereabouts(SANDBOX) is Missing.DEAD
