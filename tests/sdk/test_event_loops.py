"""Clients and event loops: whose a client is, and what becomes of calls when it is closed."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from sandlot import AsyncClient, AsyncSandbox, ConnectionFailed

from tests.sdk.service.server import Service
from tests.waiting import SECONDS, wait_until

CLEAN = """
import asyncio, logging
from sandlot import AsyncSandbox
logging.getLogger("asyncio").setLevel("ERROR")  # -X dev warns of each step that takes 0.1 s, as on a busy machine
async def main():
    box = await AsyncSandbox.create()
    print((await box.exec("echo fine")).stdout, end="")
asyncio.run(main())
asyncio.run(main())
"""


def test_the_shared_client_is_closed_with_its_event_loop(service: Service) -> None:
    run = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", CLEAN],
        env=service.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert (run.stdout, run.stderr, run.returncode) == ("fine\nfine\n", "", 0)
    wait_until(lambda: service.open_now == 0)


async def test_a_closed_client_says_so_at_once(service: Service) -> None:
    client = AsyncClient(url=service.url, api_key=service.api_key)
    box = await AsyncSandbox.create(client=client)
    running = asyncio.create_task(box.exec("sleep 60", op_id="long"))
    await service.until_running("long")
    await client.aclose()
    async with asyncio.timeout(50):  # of 60
        with pytest.raises(ConnectionFailed, match="this client is closed"):
            await running
        with pytest.raises(ConnectionFailed, match="this client is closed"):
            await box.refresh()


async def test_a_client_of_another_loop_says_so(service: Service) -> None:
    client = AsyncClient(url=service.url, api_key=service.api_key)
    await AsyncSandbox.list(client=client)
    with pytest.raises(RuntimeError, match="another event loop"):
        await asyncio.to_thread(lambda: asyncio.run(AsyncSandbox.list(client=client)))
    await client.aclose()
