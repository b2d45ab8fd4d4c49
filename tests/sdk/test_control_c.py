"""Ctrl-C: the command that a program waits for ends, and so does all that a batch of it has started."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sdk.service.server import Service
from tests.waiting import SECONDS, wait_until

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

MAP_EXECS = """
from sandlot import Sandbox
with Sandbox.create() as box:
    box.map_execs(["sleep 60"] * 5, concurrency=3)
"""

MAP = """
from sandlot import Sandbox
Sandbox.map(lambda box, _: box.exec("sleep 60"), range(5), concurrency=3)
"""

MAP_OF_MAPS = """
from sandlot import Sandbox
Sandbox.map(lambda box, n: box.map_execs(["sleep 60"] * n), [1, 2])
"""

MAP_OF_STREAMS = """
from sandlot import Sandbox
def work(box, _):
    for event in box.exec("sleep 60", stream=True):
        pass
Sandbox.map(work, range(3))
"""

MAP_OF_CODE = """
import pathlib, sys, time
from sandlot import Sandbox
def work(box, n):
    if n:
        return box.exec("sleep 60")
    pathlib.Path(sys.argv[1]).touch()
    time.sleep(60)
Sandbox.map(work, [0, 1, 1, 1])
"""


@pytest.mark.parametrize("script", [SYNC, ASYNC], ids=["sync", "async"])
def test_control_c_ends_the_command_and_deletes_the_sandbox(service: Service, script: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", script], env=service.environment(), stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: "long" in service.ops and service.ops["long"].process)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=SECONDS)
    assert "KeyboardInterrupt" in error.splitlines()[-1]
    assert len(service.calls("/ops/long", "DELETE")) == 1
    assert [box["status"] for box in service.sandboxes.values()] == ["TERMINATED"]


@pytest.mark.parametrize(
    "script",
    [MAP_EXECS, MAP, MAP_OF_MAPS, MAP_OF_STREAMS, MAP_OF_CODE],
    ids=["execs", "map", "maps", "streams", "code"],
)
def test_control_c_ends_what_a_synchronous_batch_has_started(
    service: Service, script: str, tmp_path: Path
) -> None:
    in_code = tmp_path / "in-code"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(in_code)],
        env=service.environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: len([op for op in list(service.ops.values()) if op.process]) == 3)
        if script is MAP_OF_CODE:  # an item that still creates its sandbox would delete it
            wait_until(in_code.exists)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    assert "KeyboardInterrupt" in error.splitlines()[-1]
    assert len(service.ops) == 3, "another command was begun"
    wait_until(lambda: all(op.document is not None for op in list(service.ops.values())))
    assert {op.document["verdict"] for op in service.ops.values() if op.document} == {"killed"}
    left = [box for box in service.sandboxes.values() if box["status"] != "TERMINATED"]
    assert len(left) == (1 if script is MAP_OF_CODE else 0)  # nothing can end the code of a thread
