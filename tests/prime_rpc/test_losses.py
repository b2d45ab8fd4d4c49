"""Sessions while something under them is not there yet, or not any more."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError

from tests import plain_http
from tests.e2e.processes import init, sidecars
from tests.prime_rpc.support import Box, Seen, bash, new_session, refused
from tests.sidecar.processes import descendants
from tests.stack import Stack
from tests.waiting import until

pytestmark = pytest.mark.root


def sleeps(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x004202\0"
    except OSError:
        return False


async def test_start_waits_for_a_sandbox_that_is_starting(stack: Stack):
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    async with plain_http.async_client(base_url=stack.url, headers=headers, timeout=60) as client:
        body = {"docker_image": "host", "wait_seconds": 0, "cpu_cores": 0.7}  # none that is warm fits
        sandbox = (await client.post("/api/v1/sandbox", json=body)).json()
        auth = (await client.post(f"/api/v1/sandbox/{sandbox['id']}/auth")).json()
    box = Box(url=stack.url, api_key=stack.api_key, auth=auth, sandbox_id=sandbox["id"])
    assert sandbox["status"] == "PENDING"
    assert (await box.run("echo here")).stdout == b"here\n"
    box.delete()


async def test_lost_sidecar_is_never_a_result(stack: Stack, new_box: Callable[[], Box]):
    box, session = new_box(), new_session()
    stream, seen = box.start(bash("echo ready; sleep 4201", session_uuid=session)), Seen()
    await seen.until(stream, b"ready")
    for pid in sidecars(stack):
        with suppress(ProcessLookupError):  # its child of a moment ago, not yet with a name of its own
            os.kill(pid, signal.SIGKILL)
    with pytest.raises(ConnectError) as caught:
        await seen.read(stream)
    assert caught.value.code in (Code.ABORTED, Code.NOT_FOUND)
    assert seen.end is None
    code = Code.UNAVAILABLE
    while code is not Code.NOT_FOUND:  # until the gateway knows that the sandbox is gone
        assert code is Code.UNAVAILABLE
        with pytest.raises(ConnectError) as caught:
            await box.run("true")
        code = caught.value.code


async def test_lost_init_ends_its_sessions_but_not_the_sandbox(new_box: Callable[[], Box], stack: Stack):
    box, session = new_box(), new_session()
    stream, seen = box.start(bash("echo ready; exec sleep 4202", session_uuid=session)), Seen()
    await seen.until(stream, b"ready")
    await box.until_running("sleep 4202", 1)
    (owner,) = [pid for pid in sidecars(stack) if any(map(sleeps, descendants(pid)))]
    os.kill(init(owner), signal.SIGKILL)
    with refused(Code.NOT_FOUND, "sandbox_broken"):
        await seen.read(stream)
    with refused(Code.NOT_FOUND, "sandbox_broken"):
        await Seen().read(box.attach(session))
    await until(lambda: lives(box))
    box.delete()


async def lives(box: Box) -> bool:
    try:
        return (await box.run("echo lives")).stdout == b"lives\n"
    except ConnectError as error:  # a command in the moment of the change may be lost too
        assert error.code is Code.ABORTED
        assert "sandbox_broken" in error.message
        return False


async def test_sessions_are_counted(stack: Stack, new_box: Callable[[], Box]):
    box = new_box()
    await box.run("true")
    await box.run("kill -9 $$")
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    async with plain_http.async_client(base_url=stack.url, headers=headers) as client:
        for verdict in ("exited", "signaled"):
            counted = f'sandlot_requests_total{{code="2xx",route="rpc",verdict="{verdict}"}}'

            async def told(counted: str = counted) -> bool:  # a moment after the end of its stream
                return counted in (await client.get("/metrics")).text

            await until(told, what=counted)
    box.delete()
