"""Which attempts to connect to a sidecar count as failed: all but polls of one that may not have begun to listen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import trustme
from sandlot_contract.ids import InstanceId
from sandlot_contract.sidecar import GATEWAY_NAME, SIDECAR_NAME
from sandlot_contract.template import Template
from sandlot_contract.tls_files import TlsFiles
from sandlot_gateway.backends.kubernetes.prober import Prober
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.data.errors import DialError
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.sidecar_tls import SidecarTls
from sandlot_gateway.sidecars import Sidecars

from tests import sidecar_certificates as certificates
from tests.dataplane.pools import Dials
from tests.gateway.kubernetes_world import NEEDS_API_SERVER, TEMPLATE, Running, World
from tests.gateway.pod_sidecar import next_address
from tests.ports import free_port
from tests.waiting import until

CA, OTHER = (trustme.CA(key_type=trustme.KeyType.ECDSA) for _ in range(2))


@pytest.fixture
def dials() -> Dials:
    return Dials()


@pytest_asyncio.fixture
async def pool(dials: Dials, tmp_path: Path) -> AsyncIterator[HttpPool]:
    stranger = certificates.write(tmp_path / "stranger", OTHER, GATEWAY_NAME, trusted=(CA,))
    made = HttpPool(observer=dials, tls=SidecarTls(stranger))
    yield made
    await made.close()


def told(instance: Instance, state: dict[str, Any]) -> bool:
    return True


def is_there(instance: InstanceId) -> bool:
    return True


def dead(address: str | None = None) -> Instance:
    """An instance at whose address nothing listens."""
    return Instance(
        InstanceId("i"), Template("x"), address or f"127.0.0.1:{free_port()}", "token", pool="default"
    )


async def test_a_handshake_that_fails_is_a_failure_also_of_a_poll(
    pool: HttpPool, dials: Dials, tmp_path: Path
) -> None:
    files = certificates.write(tmp_path / "sidecar", CA, SIDECAR_NAME)
    context = TlsFiles(str(files), failing=lambda reason: None).server()
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0, ssl=context)
    address = f"tls:127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        with pytest.raises(DialError) as caught:
            await pool.fetch(address, "GET", "/v1/state", starting=True)
    finally:
        server.close()
    assert caught.value.tls
    assert dials.failed
    assert not dials.refused


async def test_a_call_of_a_warm_sidecar_that_is_dead_is_a_failure(pool: HttpPool, dials: Dials) -> None:
    await Sidecars(pool).end_unclaimed(dead())
    assert dials.failed
    assert not dials.refused


@pytest.mark.parametrize("may_start", [True, False])
async def test_polls_of_what_may_start_are_refused(pool: HttpPool, dials: Dials, *, may_start: bool) -> None:
    prober = Prober(pool=pool, told=told, is_there=is_there, may_start=lambda instance: may_start)
    prober.ask(dead())
    try:
        await until(lambda: dials.failed + dials.refused > 2)
    finally:
        await prober.close()
    assert bool(dials.failed) is not may_start
    assert bool(dials.refused) is may_start


async def test_polls_of_what_has_answered_are_failures(pool: HttpPool, dials: Dials) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        server.close()
        body = b'{"phase": "starting"}'
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    prober = Prober(pool=pool, told=told, is_there=is_there, may_start=lambda instance: True)
    prober.ask(dead(f"127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    try:
        await until(lambda: dials.failed)
    finally:
        await prober.close()
        server.close()
    assert not dials.refused


def counted(gateway: Running, result: str) -> float:
    wanted = f'sandlot_dials_total{{result="{result}"}} '
    lines = gateway.gateway.metrics.text().decode().splitlines()
    return next(float(line.removeprefix(wanted)) for line in lines if line.startswith(wanted))


async def runs(world: World, *, seconds: float) -> None:
    """A pod at whose address nothing listens has run for so long."""
    instance = await world.kubelet.pod_object(TEMPLATE, pool="default")
    since = (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
    await world.kubelet.set_status(instance, phase="Running", podIP=next_address(), conditions=[ready])


class TestOnAnApiServer:
    pytestmark = NEEDS_API_SERVER

    async def test_a_pod_that_has_begun_to_run_may_start(self, world: World) -> None:
        async with world.gateway() as gateway:
            await runs(world, seconds=0)
            await until(lambda: counted(gateway, "refused") > 1)
            assert not counted(gateway, "failed")

    async def test_one_that_has_run_for_long_does_not(self, world: World) -> None:
        """As a gateway finds it that begins."""
        await runs(world, seconds=3600)
        async with world.gateway() as gateway:
            await until(lambda: counted(gateway, "failed") > 1)
            assert not counted(gateway, "refused")

    async def test_one_that_is_claimed_by_its_record_does_not_start(self, world: World) -> None:
        kubelet = world.kubelet
        async with world.gateway() as gateway:
            instance = await kubelet.pod(TEMPLATE, pool="default")
            await gateway.warm()
            await gateway.made()
            await kubelet.until(lambda: kubelet.of_pod(instance))
        await kubelet.sidecars.pop(instance).end()
        async with world.gateway("b") as gateway:
            await until(lambda: counted(gateway, "failed") > 1)
            assert not counted(gateway, "refused")
