"""Where webhooks go: the name is looked up before there is anything to tell, and again whenever that was in vain; and when."""

from __future__ import annotations

import asyncio
import itertools
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sandlot_sidecar.server import gateway as gateways
from sandlot_sidecar.server import lookup, webhooks
from sandlot_sidecar.server.gateway import Gateway

from tests.sidecar.webhook_receiver import INSTANCE_TOKEN, Receiver, proof


@asynccontextmanager
async def telling(
    *, host: str = "127.0.0.1", heartbeat: float = 0, address: str | None = None
) -> AsyncIterator[tuple[Receiver, webhooks.Webhooks]]:
    """A gateway that listens, and a sidecar's webhooks that go to it by this name."""
    gateway = Receiver("", host="127.0.0.1")
    await gateway.start()
    way = Gateway(
        f"http://{host}:{gateway.port}/hook", instance_id="i-1", token=INSTANCE_TOKEN, address=address
    )
    told = webhooks.Webhooks(way, heartbeat=heartbeat, document=dict)
    try:
        yield gateway, told
    finally:
        await told.close()
        await gateway.stop()


def reached(told: webhooks.Webhooks) -> Gateway:
    assert told._gateway is not None
    return told._gateway


@pytest.mark.parametrize("early", ["found", "wrong", "none"])
async def test_a_name_is_looked_up_early_and_again_after_a_failure(early: str) -> None:
    async with telling(host="localhost") as (gateway, told):
        if early != "none":
            looking = told.prepare()
            assert looking is not None
            await asyncio.wait_for(looking, 10)
            assert reached(told)._address in ("127.0.0.1", "::1")
            # As when the Service has another address by then: nobody listens there.
            reached(told)._address = "127.0.0.1" if early == "found" else "127.255.255.254"
        told.ready()
        await gateway.wait("ready")
        told.claimed()
        await gateway.wait("claimed")
        assert reached(told)._address in ("127.0.0.1", "::1"), "where it got through is not looked up again"


async def test_where_a_lookup_is_in_vain_the_last_address_is_used() -> None:
    """As under a policy that holds the name server back."""
    async with telling(host="no-such-name.invalid") as (gateway, told):
        reached(told)._address = "127.0.0.1"
        told.ready()
        await gateway.wait("ready")


async def test_an_address_that_serves_again_needs_no_more_lookups() -> None:
    """Where a policy drops them, each would take seconds."""
    async with telling(host="no-such-name.invalid", address="127.0.0.1") as (gateway, told):
        reached(told)._moved = True  # as after one refused connection
        told.ready()
        await gateway.wait("ready")
        told.claimed()
        await gateway.wait("claimed")
        assert not reached(told)._moved


@pytest.mark.parametrize(
    ("host", "address"),
    [("no-such-name.invalid", "127.0.0.1"), ("localhost", "127.255.255.254")],
    ids=["without a name server", "as the Service had it before"],
)
async def test_a_given_address_is_tried_before_the_name(host: str, address: str) -> None:
    async with telling(host=host, address=address) as (gateway, told):
        assert told.prepare() is None
        told.ready()
        await gateway.wait("ready")


@pytest.mark.parametrize("status", [200, 401, 410, 503])
async def test_an_answer_that_is_no_gateways_makes_it_look_the_name_up(status: int) -> None:
    """Another program has the address of a Service that was created anew, and answers whatever it likes."""
    async with telling(host="localhost", address="127.0.0.2") as (gateway, told):
        unwanted: list[object] = []
        told.on_unwanted = lambda *about: unwanted.append(about)
        stranger = Receiver("", host="127.0.0.2")
        stranger.port, stranger.status, stranger.proof = gateway.port, status, proof("another token")
        await stranger.start()
        try:
            told.ready()
            await gateway.wait("ready")
            assert len(stranger.events) == 1
            assert not unwanted
        finally:
            await stranger.stop()


async def test_while_the_resolver_hangs_the_last_address_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a policy drops what asks DNS."""
    hangs = asyncio.Event()

    async def addresses(host: str) -> list[str]:
        await hangs.wait()
        return []

    monkeypatch.setattr(lookup, "addresses", addresses)
    monkeypatch.setattr(gateways, "ATTEMPT_TIMEOUT", 0.2)
    async with telling(host="a-name.invalid", address="127.0.0.1") as (gateway, told):
        reached(told)._moved = True  # as after one refused connection
        told.ready()
        await gateway.wait("ready")


async def test_a_claim_that_was_not_told_before_the_end_is_not_told() -> None:
    async with telling() as (gateway, told):
        told.claimed(after=0.05)
        assert await told.ended(patience=10)
        await asyncio.sleep(0.1)  # twice the time after which it would have been told
        assert [event["event"] for event in gateway.events] == ["ended"]


async def _beats(gateway: Receiver, count: int) -> list[float]:
    """When the next so many heartbeats come, by the clock of the loop."""
    before = len([event for event in gateway.events if event["event"] == "heartbeat"])
    await gateway.wait("heartbeat", count=before + count)
    came = [event["received_at"] for event in gateway.events if event["event"] == "heartbeat"]
    return came[before : before + count]


async def test_heartbeats_grow_apart_until_something_happens() -> None:
    async with telling(heartbeat=0.2) as (gateway, told):
        begun = asyncio.get_running_loop().time()
        told.ready()
        came = await _beats(gateway, 5)
        pauses = [later - earlier for earlier, later in itertools.pairwise([begun, *came])]
        # 20 % less than 0.2, 0.4, 0.8, 1.6 and, the most, 2.0 s; the machine may add to each.
        assert all(pause >= least for pause, least in zip(pauses, [0.16, 0.32, 0.64, 1.28, 1.6], strict=True))
        # Of several at least one, also on a busy machine; without a restart each would take 1.6 s.
        repeated: list[float] = []
        for _ in range(4):
            told.claimed()
            begun = asyncio.get_running_loop().time()
            repeated.append((await _beats(gateway, 1))[0] - begun)
        assert min(repeated) < 1.5, "a claim is repeated soon"
        gateway.status = 503
        # The pause under way, then 0.2 s each: nobody has heard what they say.
        pauses = [later - earlier for earlier, later in itertools.pairwise(await _beats(gateway, 6))]
        # Of five most, also on a busy machine; pauses that grow apart would be 1.28 s and more after the second.
        assert statistics.median(pauses) < 1.2
        assert len({round(pause, 4) for pause in pauses}) > 1, "jitter"
