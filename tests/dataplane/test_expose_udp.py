"""Exposures over UDP: boundaries, clients told apart, floods, idle clients, limits, and their end."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial

import pytest
from sandlot_contract.datagrams import MAX_DATAGRAM
from sandlot_gateway.data.expose import Exposures
from sandlot_gateway.data.exposure import Exposure
from sandlot_gateway.data.udp_turns import Turns

from tests.dataplane.gateway import Gateway
from tests.dataplane.udp_sidecar import UdpSidecar
from tests.waiting import SECONDS, loop_turns, until

Started = tuple[Gateway, Exposure, UdpSidecar]


class Client:
    """One client's socket."""

    def __init__(self, exposure: Exposure, *, host: str = "127.0.0.1", source: str = "") -> None:
        assert exposure.listen_port is not None
        self.sock = socket.socket(type=socket.SOCK_DGRAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.sock.bind((source, 0))
        self.sock.connect((host, exposure.listen_port))

    async def receive(self) -> bytes:
        loop = asyncio.get_running_loop()
        return await asyncio.wait_for(loop.sock_recv(self.sock, 65536), SECONDS)

    async def ask(self, payload: bytes) -> bytes:
        self.sock.send(payload)
        return await self.receive()


@pytest.fixture
async def server(stack) -> AsyncIterator[int]:
    """A UDP server that returns what it gets, to `who` its client's port, and to `much` 20 answers of 400 bytes."""
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.bind(("127.0.0.1", 0))

        def answer() -> None:
            data, client = sock.recvfrom(65536)
            for _ in range(20 if data == b"much" else 1):
                answer = {b"who": b"%d" % client[1], b"much": bytes(400)}.get(data, data)
                sock.sendto(answer, client)

        asyncio.get_running_loop().add_reader(sock, answer)
        yield sock.getsockname()[1]
        asyncio.get_running_loop().remove_reader(sock)


@pytest.fixture
async def udp(gateway, upstream, server) -> Callable[..., Awaitable[Started]]:
    """`await udp()`: a gateway, its UDP exposure, and the sidecar behind it."""

    async def start() -> Started:
        side = UdpSidecar(server)
        address = (await upstream(side)).address
        gw = await gateway(listen_host="0.0.0.0")
        gw.route(address)
        return gw, await gw.exposures.add("sb-1", "acme", 53, "dns", "udp"), side

    return start


@pytest.fixture
def client(stack) -> Callable[..., Client]:
    """`client(exposure)`: another client, whose socket the test's end closes."""

    def make(exposure: Exposure, **addresses: str) -> Client:
        made = Client(exposure, **addresses)
        stack.callback(made.sock.close)
        return made

    return make


async def answers(client: Client) -> bool:
    """Return whether an answer came at once: ask until it does."""
    try:
        async with asyncio.timeout(0.2):
            return await client.ask(b"again") == b"again"
    except (TimeoutError, ConnectionRefusedError):
        return False


def counted(gw: Gateway, name: str, **labels: str) -> float:
    return gw.metrics.registry.get_sample_value(name, labels) or 0.0


async def test_datagrams_keep_their_boundaries_and_clients_are_told_apart(udp, client):
    gw, exposure, side = await udp()
    assert exposure.protocol == "UDP"
    one, other = client(exposure), client(exposure, host="127.0.0.2", source="127.0.0.3")
    for each in (one, other, client(exposure)):
        for payload in (b"first", b"", b"x", os.urandom(MAX_DATAGRAM)):
            assert await each.ask(payload) == payload
    assert await one.ask(b"who") != await other.ask(b"who")
    assert await one.ask(b"who") == await one.ask(b"who")
    for number in range(50):
        one.sock.send(b"%d" % number)
    assert [await one.receive() for _ in range(50)] == [b"%d" % number for number in range(50)]
    assert side.opened == counted(gw, "sandlot_udp_flows") == 3
    assert gw.directory.touches


async def test_a_flood_is_dropped_and_holds_up_no_other_client(udp, client):
    gw, exposure, side = await udp()
    flood, other = client(exposure), client(exposure)
    assert await flood.ask(b"a") == b"a"
    flood.sock.send(b"stall")  # from now on nothing takes what this client sends
    for number in range(20):
        for _ in range(200):
            flood.sock.send(bytes(4096))
        assert await other.ask(b"%d" % number) == b"%d" % number
    assert side.carried < 100
    side.go.set()
    assert await flood.receive() == b"stall"
    await gw.exposures.remove(exposure.id, "acme")
    dropped = counted(gw, "sandlot_datagrams_dropped_total", reason="sandbox_slow")
    assert dropped > 3000
    dropped += counted(
        gw, "sandlot_datagrams_dropped_total", reason="no_connection"
    )  # those not read at its end
    assert dropped + counted(gw, "sandlot_datagrams_total", direction="to_sandbox") == 4022


async def test_what_waits_for_a_slow_sandbox_is_bounded_for_one_client_and_for_all(udp, client, monkeypatch):
    monkeypatch.setattr("sandlot_gateway.data.udp_limits.ALL_BYTES", 200_000)
    gw, exposure, side = await udp()
    slow = [client(exposure) for _ in range(8)]
    for each in slow:
        assert await each.ask(b"a") == b"a"
        each.sock.send(b"stall")

    def dropped() -> float:
        for each in slow:
            each.sock.send(bytes(4096))
        return counted(gw, "sandlot_datagrams_dropped_total", reason="too_many_bytes")

    await until(dropped, pause=0)
    assert counted(gw, "sandlot_datagrams_dropped_total", reason="sandbox_slow") == 0
    assert await client(exposure).ask(bytes(15_000)) == bytes(
        15_000
    )  # less than its ninth, more than is left
    side.go.set()
    await until(partial(answers, slow[0]))


async def test_a_client_that_is_idle_is_given_up_and_may_come_again(udp, client, monkeypatch):
    monkeypatch.setattr("sandlot_gateway.data.udp_flow.IDLE_CHECK", 0.02)
    gw, exposure, side = await udp()
    one = client(exposure)
    for flows in (1, 2):
        assert await one.ask(b"hello") == b"hello"
        with monkeypatch.context() as idle:  # only now: a loaded machine may take longer for an answer
            idle.setattr("sandlot_gateway.data.udp_limits.IDLE", 0)
            await until(lambda flows=flows: side.opened == side.ended == flows)
        await until(lambda: counted(gw, "sandlot_udp_flows") == 0)


async def test_the_number_of_clients_is_limited(udp, client, monkeypatch):
    monkeypatch.setattr("sandlot_gateway.data.udp_limits.FLOWS", 1)
    gw, exposure, side = await udp()
    assert await client(exposure).ask(b"in") == b"in"
    client(exposure).sock.send(b"one too many")
    await until(lambda: counted(gw, "sandlot_datagrams_dropped_total", reason="too_many_flows") == 1)
    assert side.opened == 1


async def test_of_full_places_a_client_of_one_datagram_is_the_first_to_go(udp, client, monkeypatch):
    monkeypatch.setattr("sandlot_gateway.data.udp_limits.FLOWS", 2)
    monkeypatch.setattr("sandlot_gateway.data.udp_limits.YOUNG", 0)
    gw, exposure, side = await udp()
    active = client(exposure)
    for _ in range(2):
        port = await active.ask(b"who")
    assert await client(exposure).ask(b"once") == b"once"
    assert await client(exposure).ask(b"new") == b"new"
    await until(lambda: side.ended == 1)
    assert await active.ask(b"who") == port
    assert counted(gw, "sandlot_udp_flows") == 2


async def test_a_tenant_with_few_places_gets_one_of_another_with_many(udp, client, monkeypatch):
    monkeypatch.setattr("sandlot_gateway.data.udp_limits.ALL_FLOWS", 4)
    monkeypatch.setattr("sandlot_gateway.data.udp_limits.YOUNG", 0)
    gw, exposure, side = await udp()
    for _ in range(4):
        active = client(exposure)
        assert [await active.ask(b"x") for _ in range(2)] == [b"x", b"x"]
    other = await gw.exposures.add("sb-1", "other", 53, "dns", "udp")
    for ended in (1, 2):
        guest = client(other)
        assert [await guest.ask(b"y") for _ in range(2)] == [b"y", b"y"]
        await until(lambda ended=ended: side.ended == ended)
    client(other).sock.send(b"more than its half")
    await until(lambda: counted(gw, "sandlot_datagrams_dropped_total", reason="too_many_flows") == 1)


@pytest.mark.parametrize("how", ["removed", "sandbox ended"])
async def test_it_ends_with_its_exposure(udp, client, how):
    gw, exposure, side = await udp()
    one = client(exposure)
    assert await one.ask(b"x") == b"x"
    if how == "removed":
        await gw.exposures.remove(exposure.id, "acme")
    else:
        gw.exposures.sandbox_ended("sb-1")
    await until(lambda: side.ended == 1)

    def refused() -> bool:
        try:
            one.sock.send(b"y")
            one.sock.send(b"y")
        except ConnectionRefusedError:
            return True
        return False

    await until(refused)


class Reports:
    """What several gateways share: a test reports the exposures of `sb-1`."""

    def subscribe(self, told: Callable[[str, list[Exposure]], None]) -> None:
        self.report = partial(told, "sb-1")


async def test_a_port_goes_from_one_exposure_to_another_at_once_and_when_it_is_free(udp, client):
    gw, local, _ = await udp()
    assert await client(local).ask(b"here") == b"here"
    reports = Reports()
    shared = Exposures(routes=gw.directory, pool=gw.pool, listen_host="0.0.0.0", shared=reports)
    try:
        first = replace(local, id="first")
        reports.report([first])  # its port is still the local exposure's
        await asyncio.sleep(0)
        await gw.exposures.remove(local.id, "acme")
        await until(partial(answers, client(first)))
        reports.report([])
        reports.report([replace(local, id="second")])
        await until(partial(answers, client(first)))
    finally:
        await shared.close()


async def test_without_a_running_sandbox_datagrams_are_dropped(udp, client, monkeypatch):
    monkeypatch.setattr("sandlot_gateway.data.udp_flow._RETRY", 0.1)
    gw, exposure, side = await udp()
    address = gw.directory.routes["sb-1"].address
    gw.route(address, status="PENDING")
    one = client(exposure)
    one.sock.send(b"too early")
    await until(lambda: counted(gw, "sandlot_datagrams_dropped_total", reason="no_connection") == 1)
    await until(lambda: counted(gw, "sandlot_udp_flows") == 0)
    assert side.opened == 0
    gw.route(address)
    assert await one.ask(b"now") == b"now"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only it may forge a sender")
async def test_an_app_and_another_server_do_not_answer_each_other_for_ever(udp, client):
    gw, exposure, side = await udp()
    other = await gw.exposures.add("sb-1", "acme", 53, "dns", "udp")
    with socket.socket(type=socket.SOCK_RAW, proto=socket.IPPROTO_UDP) as forger:
        for sender in (exposure.listen_port, 0, 53, 1023):
            header = struct.pack("!4H", sender, other.listen_port, 8 + 4, 0)
            forger.sendto(header + b"ping", ("127.0.0.1", 0))
    assert await client(other).ask(b"after it") == b"after it"
    assert side.opened == 1
    assert counted(gw, "sandlot_datagrams_dropped_total", reason="refused") == 4


async def test_a_client_gets_no_more_than_a_multiple_of_what_it_sent(udp, client, monkeypatch):
    monkeypatch.setattr("sandlot_gateway.data.udp_limits.FIRST_ANSWERS", 1000)
    gw, exposure, _ = await udp()
    one = client(exposure)
    one.sock.send(b"much")
    await until(lambda: counted(gw, "sandlot_datagrams_dropped_total", reason="unasked") == 13)
    one.sock.send(b"more")
    got = [await one.receive() for _ in range(8)]
    assert got == [bytes(400)] * 7 + [b"more"]


async def test_answers_end_when_nothing_listens_at_the_clients_address(udp, client):
    gw, exposure, _ = await udp()
    one = client(exposure)
    one.sock.send(b"much")
    one.sock.close()
    await until(lambda: counted(gw, "sandlot_datagrams_dropped_total", reason="refused") >= 19)
    assert counted(gw, "sandlot_datagrams_total", direction="to_client") <= 1


async def test_turns_are_taken_in_order_and_leave_half_of_the_time():
    turns, order = Turns(), []

    def take(name: str) -> None:
        order.append(name)
        turns.spent(0.01)
        if len(order) < 12:
            turns.wait(partial(take, name), by=name)

    begin = time.monotonic()
    turns.spent(0.02)
    assert turns.must_wait()
    for name in "aabc":
        turns.wait(partial(take, name), by=name)
    await until(lambda: len(order) >= 15)
    turns.close()
    assert order[:12] == list("abc" * 4)
    assert time.monotonic() - begin >= 0.2


async def test_who_waits_for_a_turn_has_spent_it_before_the_next_one_gets_one():
    turns, had = Turns(), []

    async def take(name):
        await turns.turn(by=name)
        had.append(name)
        turns.spent(10.0)

    turns.spent(0.01)
    waiting = [asyncio.create_task(take(name)) for name in "abc"]
    await until(lambda: had)
    await loop_turns(10)
    assert had == ["a"]
    turns.close()
    for one in waiting:
        one.cancel()
    await asyncio.wait(waiting)
