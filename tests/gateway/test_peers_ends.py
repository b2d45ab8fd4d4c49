"""Other gateways' answers about one sandbox: some are older than others, and some do not come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

import pytest
from aiohttp import web
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_gateway.backends.kubernetes.peer_calls import Missing
from sandlot_gateway.backends.kubernetes.peers import Peers, PeerSettings
from sandlot_gateway.core.owners import RecordedEnd
from sandlot_gateway.data.pool import HttpPool

from tests.ports import free_port

SANDBOX = SandboxId("sb-0")
END = RecordedEnd(SANDBOX, verdict="init_killed", message=None, exit_code=None, of_pending_create=False)


class Others:
    """Gateways that answer the same question, each after its time."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self._runners: list[web.AppRunner] = []
        self._closing = asyncio.Event()

    async def add(self, told: dict[str, Any], *, after: float | None = 0.0, status: int = 200) -> None:
        """`after` None: it is silent."""

        async def answer(_: web.Request) -> web.Response:
            if after is None:
                await self._closing.wait()
            else:
                await asyncio.sleep(after)
            return web.Response(text=json.dumps(told), status=status)

        app = web.Application()
        app.add_routes([web.get("/internal/sandboxes/{id}/instance", answer)])
        runner = web.AppRunner(app, access_log=None)
        self._runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.addresses.append(f"127.0.0.1:{runner.addresses[0][1]}")

    async def found(self, host: str, port: int) -> list[str]:
        return self.addresses

    async def close(self) -> None:
        self._closing.set()
        for runner in self._runners:
            await runner.cleanup()


@pytest.fixture
async def others(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Others]:
    others = Others()
    monkeypatch.setattr("sandlot_gateway.backends.kubernetes.peers.addresses_of", others.found)
    yield others
    await others.close()


@pytest.fixture
async def pool() -> AsyncIterator[HttpPool]:
    pool = HttpPool()
    yield pool
    await pool.close()


@pytest.fixture
def peers(others: Others, pool: HttpPool) -> Peers:
    return peers_of(pool, timeout=20.0)


def peers_of(pool: HttpPool, *, timeout: float) -> Peers:
    return Peers(PeerSettings("gateways:1", own_port=1, timeout=timeout), pool=pool, token=lambda: "spt_0")


async def test_an_end_is_heard_after_a_gateway_that_believes_it_runs(peers: Peers, others: Others) -> None:
    await others.add({"instance_id": "i-0"})
    await others.add({"end": asdict(END)}, after=0.2)
    assert await peers.whereabouts(SANDBOX) == InstanceId("i-0")
    assert await peers.end_of(SANDBOX) == END


async def test_a_sandbox_that_all_believe_to_run_has_no_end(peers: Peers, others: Others) -> None:
    await others.add({"instance_id": "i-0"})
    await others.add({}, after=0.1)
    assert await peers.end_of(SANDBOX) is None


async def test_a_sandbox_that_all_deny_is_unknown(peers: Peers, others: Others) -> None:
    assert await peers.whereabouts(SANDBOX) is Missing.DENIED
    for after in (0.0, 0.1):
        await others.add({}, status=404, after=after)
    assert await peers.whereabouts(SANDBOX) is Missing.DENIED


async def test_one_that_knows_it_is_enough(peers: Peers, others: Others) -> None:
    await others.add({}, status=503)
    await others.add({"pending": True})
    await others.add({"instance_id": "i-0"}, after=0.1)
    assert await peers.whereabouts(SANDBOX) == InstanceId("i-0")


async def test_one_that_brings_it_up_says_so_whatever_the_others_do(
    peers: Peers, others: Others, pool: HttpPool
) -> None:
    await others.add({"pending": True})
    await others.add({}, status=404)
    await others.add({}, status=503, after=0.1)
    assert await peers.whereabouts(SANDBOX) is Missing.STARTING
    assert await peers.end_of(SANDBOX) is None
    await others.add({}, after=None)
    peers = peers_of(pool, timeout=4.0)
    assert await peers.whereabouts(SANDBOX) is Missing.STARTING


@pytest.mark.parametrize("silent", [False, True], ids=["dead", "dead and silent"])
async def test_a_dead_gateway_is_told_from_a_silent_one(peers: Peers, others: Others, silent: bool) -> None:
    await others.add({}, status=404)
    others.addresses.append(f"127.0.0.1:{free_port()}")
    if silent:
        await others.add({}, status=503)
    assert await peers.whereabouts(SANDBOX) is (Missing.SILENT if silent else Missing.DEAD)


@pytest.mark.parametrize("other", ["fails", "is silent", "is unreadable"])
async def test_a_gateway_that_does_not_answer_has_not_denied_it(
    others: Others, peers: Peers, pool: HttpPool, other: str
) -> None:
    await others.add({}, status=404)
    if other == "fails":
        await others.add({}, status=503)
    elif other == "is unreadable":
        await others.add({"instance_id": 1})
    else:
        await others.add({}, after=None)
        peers = peers_of(pool, timeout=0.2)
    assert await peers.whereabouts(SANDBOX) is Missing.SILENT
