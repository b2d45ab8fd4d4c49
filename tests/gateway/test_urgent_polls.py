"""Polls of many sidecars for owners: what is an answer, and how long none is waited for."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import Any

import pytest
from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template
from sandlot_gateway.backends.kubernetes.urgent_polls import UrgentPolls
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.data.pool import HttpPool

from tests.ports import free_port

WARM = {"phase": "warm", "sandbox_id": None}
OWNED = {"phase": "claimed", "sandbox_id": "sb-1"}
# Answers that do not say whether it will have an owner.
UNDECIDED = {
    "being claimed": {"phase": "warm", "claiming": True, "sandbox_id": None},
    "starting again": {"phase": "starting", "sandbox_id": "sb-1"},
}


class Polled:
    """What a round of polls is told of."""

    def __init__(self, *, pool: HttpPool, may_start: bool = False) -> None:
        self.told: list[dict[str, Any]] = []
        self.gone: set[str] = set()
        self._polls = UrgentPolls(
            pool=pool,
            told=self._tell,
            is_there=lambda instance_id: instance_id not in self.gone,
            may_start=lambda instance: may_start,
        )

    def _tell(self, instance: Instance, state: dict[str, Any]) -> None:
        if state["phase"] == "odd":
            raise TypeError("its generation is no number")
        self.told.append(state)

    async def poll(self, *instances: Instance) -> list[Instance]:
        async with asyncio.timeout(60):
            return await self._polls.poll(instances)


@pytest.fixture
async def pool() -> AsyncIterator[HttpPool]:
    pool = HttpPool()
    yield pool
    await pool.close()


def at(port: int, number: int = 0) -> Instance:
    return Instance(InstanceId(f"i-{number:016x}"), Template("python:3.12"), f"127.0.0.1:{port}", "secret")


@asynccontextmanager
async def answering(*states: dict[str, Any], port: int = 0) -> AsyncIterator[int]:
    """A sidecar with these answers in turn, of which the last one stays; the number of its port."""
    left = list(states)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                body = json.dumps(left.pop(0) if len(left) > 1 else left[0]).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize("first", UNDECIDED)
async def test_one_that_may_have_an_owner_soon_is_asked_again(pool: HttpPool, first: str) -> None:
    """The claim that it was applying, or had before its restart, was not found."""
    polled = Polled(pool=pool)
    async with answering(UNDECIDED[first], OWNED) as port:
        assert await polled.poll(at(port)) == []
    assert polled.told == [OWNED]


async def test_one_that_starts_and_has_no_owner_has_answered(pool: HttpPool) -> None:
    polled = Polled(pool=pool)
    async with answering({"phase": "starting", "sandbox_id": None}) as port:
        assert await polled.poll(at(port)) == []
    assert polled.told == []


async def test_one_that_has_listened_and_refuses_is_asked_again(pool: HttpPool) -> None:
    """It may be starting again."""
    polled = Polled(pool=pool)
    port = free_port()
    polling = asyncio.create_task(polled.poll(at(port)))
    await asyncio.sleep(0.2)
    assert not polling.done()
    async with answering(OWNED, port=port):
        assert await polling == []
    assert polled.told == [OWNED]


async def test_one_that_has_not_listened_yet_has_no_owner(pool: HttpPool) -> None:
    polled = Polled(pool=pool, may_start=True)
    assert await polled.poll(at(free_port())) == []
    assert polled.told == []


async def test_one_that_is_gone_is_not_waited_for(pool: HttpPool) -> None:
    polled = Polled(pool=pool)
    polling = asyncio.create_task(polled.poll(instance := at(free_port())))
    await asyncio.sleep(0.1)
    polled.gone.add(instance.id)
    assert await polling == []


async def test_a_state_that_cannot_be_handled_ends_no_search(
    pool: HttpPool, caplog: pytest.LogCaptureFixture
) -> None:
    """One sidecar that reported such a state kept all creates of a dead gateway waiting for good."""
    polled = Polled(pool=pool)
    async with answering({"phase": "odd"}) as odd, answering(OWNED) as port:
        assert await polled.poll(at(odd, 1), at(port, 2)) == []
    assert polled.told == [OWNED]
    assert "i-0000000000000001" in caplog.text


async def test_few_are_asked_at_a_time(pool: HttpPool) -> None:
    """All sidecars of a cluster were, each on a connection of its own."""
    polled, now, most = Polled(pool=pool), 0, 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal now, most
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                now += 1
                most = max(most, now)
                await asyncio.sleep(0.1)
                now -= 1
                body = json.dumps(WARM).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        assert await polled.poll(*(at(port, number) for number in range(200))) == []
    finally:
        server.close()
    assert len(polled.told) == 200
    assert 1 < most <= 64


async def test_silent_ones_hold_up_nobody(pool: HttpPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those behind them were never asked, and counted as asked."""
    monkeypatch.setattr("sandlot_gateway.backends.kubernetes.urgent_polls._PATIENCE", 1.0)
    polled = Polled(pool=pool)
    async with AsyncExitStack() as stack:
        silent = []
        for number in range(1, 150):
            listener = stack.enter_context(closing(socket.create_server(("127.0.0.1", 0))))
            silent.append(at(listener.getsockname()[1], number))
        port = await stack.enter_async_context(answering(WARM))
        began = asyncio.get_running_loop().time()
        assert await polled.poll(*silent, at(port)) == silent
        assert asyncio.get_running_loop().time() - began < 30.0
    assert polled.told == [WARM]
