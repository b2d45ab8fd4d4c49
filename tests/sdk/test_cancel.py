"""Giving up: a cancelled command ends on the server too, and a cancelled create leaves no sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest
from sandlot import AsyncClient, AsyncSandbox

from tests.sdk.service import Fault, Service

SYNC = """
from sandlot import Sandbox
with Sandbox.create() as box:
    box.exec("echo started; sleep 60", op_id="long")
"""

ASYNC = """
import asyncio
from sandlot import AsyncSandbox
async def main():
    async with await AsyncSandbox.create() as box:
        await box.exec("echo started; sleep 60", op_id="long")
asyncio.run(main())
"""

CLEAN = """
import asyncio
from sandlot import AsyncSandbox
async def main():
    box = await AsyncSandbox.create()
    print((await box.exec("echo fine")).stdout, end="")
asyncio.run(main())
asyncio.run(main())
"""


def environment(service: Service) -> dict[str, str]:
    return {**os.environ, "SANDLOT_URL": service.url, "SANDLOT_API_KEY": service.api_key}


async def until_running(service: Service, op_id: str) -> None:
    await asyncio.to_thread(service.wait_for, lambda: op_id in service.ops and service.ops[op_id].process)


async def test_cancelling_an_exec_ends_the_command(service: Service) -> None:
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        box = await AsyncSandbox.create(client=client)
        task = asyncio.create_task(box.exec("sleep 60", op_id="long"))
        await until_running(service, "long")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(service.calls("/ops/long", "DELETE")) == 1
        assert (await (await box.attach("long")).wait()).verdict == "killed"


async def test_a_timeout_around_an_exec_ends_the_command(service: Service) -> None:
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        box = await AsyncSandbox.create(client=client)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await box.exec("sleep 60", op_id="long")
        assert len(service.calls("/ops/long", "DELETE")) == 1


async def test_cancelling_a_stream_ends_the_command(service: Service) -> None:
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        box = await AsyncSandbox.create(client=client)

        async def follow() -> None:
            async for _ in await box.exec("sleep 60", op_id="long", stream=True):
                pass

        task = asyncio.create_task(follow())
        await until_running(service, "long")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(service.calls("/ops/long", "DELETE")) == 1


async def test_a_create_given_up_before_its_answer_leaves_no_sandbox(service: Service) -> None:
    service.faults.append(Fault("/sandbox", hold=True))
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        task = asyncio.create_task(AsyncSandbox.create(client=client))
        await asyncio.to_thread(service.wait_for, lambda: service.calls("/sandbox", "POST"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    keys = {json.loads(seen.body)["idempotency_key"] for seen in service.calls("/sandbox", "POST")}
    assert len(keys) == 1
    assert [box["status"] for box in service.sandboxes.values()] == ["TERMINATED"]


@pytest.mark.parametrize("script", [SYNC, ASYNC], ids=["sync", "async"])
def test_control_c_ends_the_command_and_deletes_the_sandbox(service: Service, script: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", script], env=environment(service), stderr=subprocess.PIPE, text=True
    )
    service.wait_for(lambda: "long" in service.ops and service.ops["long"].process, seconds=20)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in error.splitlines()[-1]
    assert len(service.calls("/ops/long", "DELETE")) == 1
    assert [box["status"] for box in service.sandboxes.values()] == ["TERMINATED"]


def test_the_shared_client_is_closed_with_its_event_loop(service: Service) -> None:
    run = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", CLEAN],
        env=environment(service),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (run.stdout, run.stderr, run.returncode) == ("fine\nfine\n", "", 0)
    service.wait_for(lambda: service.open_now == 0)
