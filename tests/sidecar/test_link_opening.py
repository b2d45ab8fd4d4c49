"""How a sidecar asks the gateway for a link: when it looks the gateway's name up, and what a lost machine costs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sandlot_sidecar.server import lookup
from sandlot_sidecar.server.gateway import Gateway, GatewayError
from sandlot_sidecar.server.links import opening

from tests.sidecar.webhook_receiver import INSTANCE_TOKEN
from tests.waiting import until


@asynccontextmanager
async def answering(statuses: list[int], *, shows: bool = True) -> AsyncIterator[tuple[Gateway, list[bytes]]]:
    """A gateway that answers so, in turn; `shows`: that it is one. And the heads of the requests."""
    heads: list[bytes] = []
    serving: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            proof = gateway.proof if shows else "none"
            writer.write(f"HTTP/1.1 {statuses.pop(0)} X\r\nX-Sandlot-Gateway: {proof}\r\n\r\n".encode())
            await reader.read(-1)
        finally:
            writer.transport.abort()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.get_running_loop().create_task(answer(reader, writer)))

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    gateway = Gateway(
        f"http://gateway.test:{port}/x", instance_id="i-1", token=INSTANCE_TOKEN, address="127.0.0.1"
    )
    try:
        yield gateway, heads
    finally:
        server.close()
        if serving:
            await asyncio.wait(serving)
        await asyncio.sleep(0)  # the transports close


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were looked up; each leads to 127.0.0.1."""
    found: list[str] = []

    async def addresses(host: str) -> list[str]:
        found.append(host)
        return ["127.0.0.1"]

    monkeypatch.setattr(lookup, "addresses", addresses)
    return found


async def link(gateway: Gateway) -> asyncio.StreamWriter:
    return (await opening.link(gateway, sandbox_id="sb-1", name="db", port=5432))[1]


async def test_a_gateway_that_does_not_know_the_group_yet_is_not_looked_up(lookups: list[str]) -> None:
    async with answering([503, 503, 101]) as (gateway, heads):
        writer = await link(gateway)
        assert (len(heads), lookups) == (3, [])
        sock = writer.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
        assert b"X-Sandlot-Signature: sha256=" in heads[0]
        writer.transport.abort()


async def test_links_that_fail_together_share_one_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    lookups: list[str] = []
    together = asyncio.Event()

    async def addresses(host: str) -> list[str]:
        lookups.append(host)
        await together.wait()
        return ["127.0.0.1"]

    monkeypatch.setattr(lookup, "addresses", addresses)
    async with answering([503] * 8 + [101] * 8, shows=False) as (gateway, heads):
        opened = [asyncio.create_task(link(gateway)) for _ in range(8)]
        await until(lambda: len(heads) == 8 and lookups)
        for one in opened:
            one.cancel()
        await asyncio.wait(opened)
        together.set()
        await asyncio.gather(*(gateway.look_up() for _ in range(8)))
        assert len(lookups) <= 2


async def test_a_refusal_is_final(lookups: list[str]) -> None:
    async with answering([404]) as (gateway, heads):
        with pytest.raises(GatewayError, match="404"):
            await link(gateway)
        assert (len(heads), lookups) == (1, [])
