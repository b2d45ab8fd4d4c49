"""Where webhooks go: the name is looked up before there is anything to tell, and again whenever that was in vain; and when."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sandlot_sidecar.server import webhooks


class Gateway:
    """Takes webhooks on loopback, by the name `localhost`."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[dict] = asyncio.Queue()
        self.status = "200 OK"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        length = next(int(line.split(":")[1]) for line in head if line.startswith("content-length:"))
        self.told.put_nowait(json.loads(await reader.readexactly(length)))
        writer.write(f"HTTP/1.1 {self.status}\r\n\r\n".encode())
        await writer.drain()
        writer.close()


@asynccontextmanager
async def telling(
    *, host: str = "127.0.0.1", heartbeat: float = 0
) -> AsyncIterator[tuple[Gateway, webhooks.Webhooks]]:
    """A gateway that listens, and a sidecar's webhooks that go to it by this name."""
    gateway = Gateway()
    server = await asyncio.start_server(gateway.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    told = webhooks.Webhooks(
        url=f"http://{host}:{port}/hook", instance_id="i-1", token="t", heartbeat=heartbeat, document=dict
    )
    try:
        yield gateway, told
    finally:
        await told.close()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("early", ["found", "wrong", "none"])
async def test_a_name_is_looked_up_early_and_again_after_a_failure(early: str) -> None:
    async with telling(host="localhost") as (gateway, told):
        if early != "none":
            looking = told.prepare()
            assert looking is not None
            await asyncio.wait_for(looking, 10)
            assert told._address in ("127.0.0.1", "::1")
            # As when the Service has another address by then: nobody listens there.
            told._address = "127.0.0.1" if early == "found" else "127.255.255.254"
        told.ready()
        assert (await asyncio.wait_for(gateway.told.get(), 10))["event"] == "ready"
        told.claimed()
        assert (await asyncio.wait_for(gateway.told.get(), 10))["event"] == "claimed"
        assert told._address in ("127.0.0.1", "::1"), "where it got through is not looked up again"


async def test_where_a_lookup_is_in_vain_the_last_address_is_used() -> None:
    """As under a policy that holds the name server back."""
    async with telling(host="no-such-name.invalid") as (gateway, told):
        told._address = "127.0.0.1"
        told.ready()
        assert (await asyncio.wait_for(gateway.told.get(), 20))["event"] == "ready"


async def test_a_claim_that_was_not_told_before_the_end_is_not_told() -> None:
    async with telling() as (gateway, told):
        told.claimed(after=0.05)
        assert await told.ended(patience=10)
        await asyncio.sleep(0.1)  # twice the time after which it would have been told
        assert [gateway.told.get_nowait()["event"] for _ in range(gateway.told.qsize())] == ["ended"]


async def _beats(gateway: Gateway, count: int) -> list[float]:
    """When so many heartbeats came, in seconds of the loop's clock."""
    came: list[float] = []
    async with asyncio.timeout(60):
        while len(came) < count:
            if (await gateway.told.get())["event"] == "heartbeat":
                came.append(asyncio.get_running_loop().time())
    return came


async def test_heartbeats_grow_apart_until_something_happens() -> None:
    async with telling(heartbeat=0.1) as (gateway, told):
        told.ready()
        begun = asyncio.get_running_loop().time()
        came = await _beats(gateway, 5)
        pauses = [later - earlier for earlier, later in itertools.pairwise([begun, *came])]
        # 20 % less than 0.1, 0.2, 0.4, 0.8 and, the most, 1.0 s; the machine may add to each.
        assert all(pause >= least for pause, least in zip(pauses, [0.08, 0.16, 0.32, 0.64, 0.8], strict=True))
        told.claimed()
        begun = asyncio.get_running_loop().time()
        assert (await _beats(gateway, 1))[0] - begun < 0.7, "a claim is repeated soon"
        gateway.status = "503 Service Unavailable"
        begun = asyncio.get_running_loop().time()
        # The pause under way, then 0.1 s each: nobody has heard what they say.
        came = await _beats(gateway, 6)
        assert came[-1] - begun < 3
        assert len({round(later - earlier, 4) for earlier, later in itertools.pairwise(came)}) > 1, "jitter"
