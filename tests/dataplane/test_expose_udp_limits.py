"""What clients of exposures over UDP cannot do: flood others, take all places, or have answers sent without end."""

from __future__ import annotations

import os
import socket
import struct
from functools import partial

import pytest

from tests.dataplane.udp_exposure import answers, client, counted, server, udp
from tests.waiting import until

__all__ = ["client", "server", "udp"]


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
