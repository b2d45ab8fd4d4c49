"""The controller's calls of sidecars while many of them are silent."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest
from sandlot_contract.verdicts import SandboxVerdict
from sandlot_controller.act.sidecars import EndAnswer, Sidecars, SidecarUnreachable

SILENT, HEALTHY = "127.0.0.2", "127.0.0.3"
TIMEOUT = 2.0  # seconds


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
