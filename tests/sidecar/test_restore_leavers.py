"""A gateway that goes while a restore fails: the sandbox's end is carried out all the same."""

from __future__ import annotations

import os
import signal

import pytest

from tests.sidecar.processes import command_line, descendants
from tests.sidecar.support import Sidecar
from tests.sidecar.webhook_receiver import INSTANCE_TOKEN
from tests.waiting import until

pytestmark = pytest.mark.root

HEAD = b"POST /v1/restore HTTP/1.1\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n"


async def test_a_gateway_that_goes_while_a_failed_restore_ends_the_sandbox_leaves_no_half_of_it(make) -> None:
    box: Sidecar = await make(claim={"restore": True})
    assert box.process is not None
    _, writer = await box.raw()
    writer.write(HEAD % INSTANCE_TOKEN.encode() + b"no archive")
    await until(lambda: any(b"sandlot_sidecar.layer" in command_line(pid) for pid in descendants(box.pid)))

    async def has_ended() -> bool:
        return (await box.instance("GET", "/v1/state")).json()["phase"] in ("ended", "failed")

    executor = box.executor_pid()
    os.kill(executor, signal.SIGSTOP)  # the end waits for it
    try:
        writer.write(bytes(90))
        await until(has_ended)
        writer.transport.abort()
        for _ in range(3):
            assert await has_ended()
    finally:
        os.kill(executor, signal.SIGCONT)
    await box.wait_exit()
