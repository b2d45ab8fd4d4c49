"""A runner or an executor that reads no messages delays only what it has to do itself."""

from __future__ import annotations

import asyncio

import pytest

from tests.sidecar.calls import usable
from tests.sidecar.support import Sidecar
from tests.stopped import stopped
from tests.waiting import until

pytestmark = pytest.mark.root


LEASED = """
import fcntl, shutil, signal, time
signal.signal(signal.SIGIO, signal.SIG_IGN)  # by which it is asked to give it back
shutil.copy("/bin/true", "/leased")
with open("/leased", "r+b") as file:
    fcntl.fcntl(file, 1024, 1)  # F_SETLEASE, F_WRLCK: who opens it waits until it is given back, 45 s at most
    print("held", flush=True)
    time.sleep(600)
"""


async def test_a_runner_that_code_keeps_busy_holds_nobody(box: Sidecar) -> None:
    """It waits in an exec, and reads no messages."""
    await box.op(["python3", "-c", LEASED], id="holds", detach=True)

    async def held() -> bool:
        return (await box.call("GET", "/v1/ops/holds")).json()["stdout_bytes"] == 5

    await until(held)
    await box.op(["/leased"], id="waits", detach=True)
    statuses = set()
    async with asyncio.timeout(30):
        for number in range(2000):
            answer = await box.call(
                "POST", "/v1/ops/waits/signal", json={"signal": "CONT", "id": str(number)}
            )
            statuses.add(answer.status_code)
            if answer.status_code == 503:
                break
        assert statuses == {200, 503}, answer.text
        assert answer.json()["error"] == "busy"
        assert (await box.instance("GET", "/v1/state")).status_code == 200
        await usable(box)
        ended = (await box.call("DELETE", "/v1/ops/waits")).json()
    assert ended["verdict"] == "killed", ended
    await box.call("DELETE", "/v1/ops/holds")
    await usable(box)


async def test_an_executor_that_is_busy_holds_nobody(box: Sidecar) -> None:
    with stopped(box.executor_pid()):
        path = "/" + "x" * 4000
        asked = [asyncio.create_task(box.call("GET", f"/v1/files/stat?path={path}")) for _ in range(90)]
        await asyncio.wait(asked, timeout=1)
        async with asyncio.timeout(20):
            assert (await box.instance("GET", "/v1/state")).status_code == 200
    assert {answer.status_code for answer in await asyncio.gather(*asked)} == {
        400
    }  # a name is 255 bytes at most
    await usable(box)
