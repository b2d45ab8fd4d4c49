"""Attackers who are root inside the sandbox and know the port: they kill, read and call what they can find."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.sidecar.attacks import SPY, UNAUTHORIZED_CALLS
from tests.sidecar.calls import has_process, usable
from tests.sidecar.processes import descendants, memory_of
from tests.sidecar.support import SANDBOX_TOKEN, Sidecar
from tests.sidecar.webhook_receiver import INSTANCE_TOKEN
from tests.waiting import until

pytestmark = pytest.mark.root


async def test_killing_everything_hurts_only_the_sandbox(box: Sidecar) -> None:
    background = await box.op("sleep 300", id="victim", detach=True)
    assert background["state"] in ("running", "queued")
    await until(lambda: has_process(box, "victim"))
    answer = await box.exec("kill -9 -1; kill -9 1; echo survived")
    assert (answer["verdict"], answer["stdout"]) == ("exited", "survived\n"), answer
    victim = await box.ended("victim")
    assert victim["verdict"] == "signaled"
    await usable(box)


async def test_user_code_sees_nothing_of_the_sidecar(box: Sidecar) -> None:
    spy = SPY.replace("TOKENPART", "of-a-test")
    await box.call("PUT", "/v1/files?path=/spy.py", content=spy.encode())
    assert (await box.exec("python3 /spy.py"))["stdout"].strip() == "[]"
    pids = (await box.exec("ls -d /proc/[0-9]*; ls -l /proc/self/fd"))["stdout"]
    assert pids.count("/proc/") <= 8
    assert "sidecar.sock" not in pids


async def test_no_token_in_the_executor_or_on_a_command_line(box: Sidecar) -> None:
    assert await asyncio.to_thread(memory_of, box.executor_pid())
    for pid in descendants(box.pid) - {box.pid}:
        # It may have ended since, as a runner that nobody needs.
        with suppress(FileNotFoundError, ProcessLookupError):
            memory = await asyncio.to_thread(memory_of, pid)
            assert INSTANCE_TOKEN.encode() not in memory, pid
            assert SANDBOX_TOKEN.encode() not in memory, pid
    for pid in descendants(box.pid):
        for name in ("cmdline", "environ"):
            with suppress(FileNotFoundError, ProcessLookupError):
                assert b"of-a-test" not in await asyncio.to_thread(Path(f"/proc/{pid}/{name}").read_bytes)


async def test_the_port_opens_nothing_to_user_code_without_a_token(make) -> None:
    port = free_port()
    box = await make(listen=f"127.0.0.1:{port}")
    await box.reconnect(f"http://127.0.0.1:{port}")
    await box.claim(network="full")
    await box.call("PUT", "/v1/files?path=/calls.py", content=UNAUTHORIZED_CALLS.encode())
    answer = await box.exec(f"python3 /calls.py {port}", timeout=150)
    assert answer["stdout"] == "200\nheld 600\n", answer
    await usable(box)
    await until(lambda: few(box))


async def few(box: Sidecar) -> bool:
    return box.descriptors()[0] < 300
