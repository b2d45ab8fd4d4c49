"""Exposures over UDP: boundaries, clients told apart, idle clients, and their end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from sandlot_contract.datagrams import MAX_DATAGRAM
from sandlot_gateway.data.expose import Exposures
from sandlot_gateway.data.exposure import Exposure

from tests.dataplane.udp_exposure import answers, client, counted, server, udp
from tests.waiting import until

__all__ = ["client", "server", "udp"]


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


async def test_answers_end_when_nothing_listens_at_the_clients_address(udp, client):
    gw, exposure, _ = await udp()
    one = client(exposure)
    one.sock.send(b"much")
    one.sock.close()
    await until(lambda: counted(gw, "sandlot_datagrams_dropped_total", reason="refused") >= 19)
    assert counted(gw, "sandlot_datagrams_total", direction="to_client") <= 1
