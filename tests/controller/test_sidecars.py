"""The controller's calls of sidecars while many of them are silent."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
import trustme
from sandlot_contract.sidecar import GATEWAY_NAME, SIDECAR_NAME
from sandlot_contract.tls_files import TlsFiles
from sandlot_contract.tls_stream import TlsStream
from sandlot_contract.verdicts import SandboxVerdict
from sandlot_controller.act.sidecars import EndAnswer, Sidecars, SidecarUnreachable, SidecarUntrusted

from tests import sidecar_certificates as certificates

SILENT, HEALTHY = "127.0.0.2", "127.0.0.3"
TIMEOUT = 8.0  # seconds; 2 were too few for the healthy one on a machine that is busy elsewhere


async def answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, came: asyncio.Semaphore
) -> None:
    """Answers ends at HEALTHY, in a quarter of the time that it has, and nothing anywhere else."""
    try:
        came.release()
        if writer.get_extra_info("sockname")[0] != HEALTHY:
            await reader.read()
            return
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(TIMEOUT / 4)
        body = json.dumps({"phase": "ended"}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
        await writer.drain()
    finally:
        writer.close()


@pytest.mark.parametrize("silent", [150, 700])
async def test_silent_sidecars_do_not_use_up_the_time_of_others(silent: int) -> None:
    came = asyncio.Semaphore(0)
    server = await asyncio.start_server(partial(answer, came=came), "0.0.0.0", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    sidecars = Sidecars(port=port, timeout=TIMEOUT)

    async def end(address: str) -> EndAnswer:
        return await sidecars.end(address, token="t", verdict=SandboxVerdict.DELETED, message="gone")

    try:
        async with server:
            calls = [asyncio.create_task(end(SILENT)) for _ in range(silent)]
            for _ in range(100):
                await came.acquire()
            assert await end(HEALTHY) is EndAnswer.ENDED
            told = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(one) for one in told} == {SidecarUnreachable}
            assert all(str(one).endswith(": TimeoutError") for one in told)
    finally:
        await sidecars.close()


@pytest.mark.parametrize(
    "fault", ["none", "expired", "of another CA", "a sidecar's", "distrusts the sidecar's"]
)
async def test_a_fault_of_its_own_certificate_is_no_silence(tmp_path: Path, fault: str) -> None:
    ours, other = (trustme.CA(key_type=trustme.KeyType.ECDSA) for _ in range(2))
    own = certificates.write(
        tmp_path / "controller",
        other if fault == "of another CA" else ours,
        SIDECAR_NAME if fault == "a sidecar's" else GATEWAY_NAME,
        trusted=(other if fault.startswith("distrusts") else ours,),
        not_after=certificates.expired() if fault == "expired" else None,
    )
    files = certificates.write(tmp_path / "sidecar", ours, SIDECAR_NAME)
    context = TlsFiles(str(files), failing=print).server()
    server = await asyncio.get_running_loop().create_server(
        lambda: TlsStream(asyncio.Protocol(), context, client_name=GATEWAY_NAME), "127.0.0.1", 0
    )
    port = server.sockets[0].getsockname()[1]
    tls = None if fault == "none" else TlsFiles(str(own), failing=print)
    sidecars = Sidecars(port=port, timeout=TIMEOUT, tls=tls)
    try:
        with pytest.raises(SidecarUntrusted):
            await sidecars.owner("tls:127.0.0.1", token="t")
        server.close()
        await server.wait_closed()
        if tls is not None:
            with pytest.raises(SidecarUnreachable) as told:
                await sidecars.owner("tls:127.0.0.1", token="t")
            assert told.type is SidecarUnreachable, "nothing listens there"
    finally:
        server.close()
        await sidecars.close()
