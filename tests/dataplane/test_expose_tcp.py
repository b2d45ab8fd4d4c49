"""Exposures over TCP (and UDP), on ports of their own: both directions, their end, and after the gateway's restart."""

from __future__ import annotations

import asyncio

import pytest
from sandlot_gateway.data.expose import Exposures
from sandlot_gateway.data.exposure import ExposeError

from tests.dataplane.gateway import Client
from tests.dataplane.upstreams import Peer, echo
from tests.ports import free_ports


async def connect(exposure) -> Client:
    return Client(*await asyncio.open_connection(exposure.listen_host, exposure.listen_port))


async def test_tcp_passes_both_ways_and_keeps_half_close(exposed):
    async def app(peer: Peer) -> None:
        data = await peer.reader.read()  # until the client's end of file
        peer.send(data[::-1])
        await peer.writer.drain()
        peer.writer.write_eof()
        await peer.ended()

    gw, exposure, _, _ = await exposed(app, protocol="TCP")
    connection = await connect(exposure)
    connection.writer.write(b"abc\x00\xff")
    connection.writer.write_eof()
    assert await connection.reader.read() == b"\xff\x00cba"
    await connection.close()
    assert gw.exposures.list("acme") == [exposure]


async def test_tcp_waits_for_a_slow_reader(exposed):
    size = 64 << 20
    sent = 0
    stalled = asyncio.Event()

    async def app(peer: Peer) -> None:
        nonlocal sent
        while sent < size:
            peer.writer.write(b"x" * 65536)
            sent += 65536
            try:
                async with asyncio.timeout(0.5):
                    await peer.writer.drain()
            except TimeoutError:
                stalled.set()
                await peer.writer.drain()
        peer.writer.write_eof()
        await peer.ended()

    _, exposure, _, _ = await exposed(app, protocol="TCP")
    connection = await connect(exposure)
    await stalled.wait()
    assert sent < size
    received = 0
    while data := await connection.reader.read(1 << 20):
        received += len(data)
    assert received == size
    await connection.close()


@pytest.mark.parametrize("how", ["removed", "sandbox ended"])
async def test_tcp_ends_with_its_exposure(exposed, how):
    gw, exposure, _, _ = await exposed(echo(), protocol="TCP")
    connection = await connect(exposure)
    connection.send("POST", "/", body=b"x")
    assert (await connection.answer())[2] == b"x"
    if how == "removed":
        await gw.exposures.remove(exposure.id, "acme")
    else:
        gw.exposures.sandbox_ended("sb-1")
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await connection.head()
    await connection.close()

    async def is_refused() -> bool:
        try:
            _, writer = await asyncio.open_connection(exposure.listen_host, exposure.listen_port)
        except ConnectionRefusedError:
            return True
        writer.transport.abort()
        return False

    async with asyncio.timeout(30):
        while not await is_refused():
            pass


async def test_tcp_to_a_port_nobody_listens_on_is_closed(exposed):
    gw, _, _, _ = await exposed(echo())
    exposure = await gw.exposures.add("sb-1", "acme", 9999, None, "TCP")
    connection = await connect(exposure)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await connection.reader.readexactly(1)
    await connection.close()


async def test_exposures_survive_the_gateway(exposed, upstream, stack, tmp_path):
    store = tmp_path / "exposures.json"
    gw, _, side, _ = await exposed(echo(), store=store)
    tcp = await gw.exposures.add("sb-1", "acme", 8000, "db", "TCP")
    await gw.exposures.add("sb-1", "acme", 53, "dns", "UDP")
    before = gw.exposures.list("acme")
    await gw.exposures.close()
    assert store.stat().st_mode & 0o777 == 0o600
    again = Exposures(routes=gw.directory, pool=gw.pool, store=store)
    stack.push_async_callback(again.close)
    await again.start()
    assert again.list("acme") == before
    connection = await connect(tcp)
    connection.send("POST", "/", body=b"still there")
    assert (await connection.answer())[2] == b"still there"
    await connection.close()
    gw.route(side.address, status="TERMINATED", verdict="deleted")
    again.prune()
    assert again.list("acme") == []


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
async def test_the_configured_ports_are_used_in_order_and_run_out(gateway, stack, protocol):
    ports = free_ports(2)
    gw = await gateway()
    exposures = Exposures(routes=gw.directory, pool=gw.pool, ports={protocol: ports})
    stack.push_async_callback(exposures.close)
    made = [await exposures.add("sb-1", "acme", 80, None, protocol) for _ in ports]
    assert [exposure.listen_port for exposure in made] == ports
    with pytest.raises(ExposeError, match="no free port"):
        await exposures.add("sb-1", "acme", 80, None, protocol)
    await exposures.remove(made[0].id, "acme")
    assert (await exposures.add("sb-1", "acme", 80, None, protocol)).listen_port == ports[0]
