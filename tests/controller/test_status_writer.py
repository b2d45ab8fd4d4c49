"""A status is written once over each version: also one that was refused is not sent as fast as requests go."""

from __future__ import annotations

import asyncio

import msgspec
from sandlot_controller.act.status_writer import StatusWriter
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Sandbox

from tests.waiting import until


def sandbox(version: str) -> Sandbox:
    body = {"metadata": {"name": "sb-1", "resourceVersion": version}, "spec": {"template": {"image": "x"}}}
    return msgspec.convert(body, Sandbox)


async def test_the_next_write_waits_until_the_watch_shows_the_last_one() -> None:
    now, over, go_on = 0.0, [], asyncio.Event()
    writer = StatusWriter(clock=lambda: now, written=over.append)

    async def send() -> None:
        await go_on.wait()

    assert writer.waits_until(sandbox("1")) is None
    assert writer.write(sandbox("1"), send)
    assert writer.is_writing("sb-1")
    assert not writer.write(sandbox("1"), send), "one at a time"
    go_on.set()
    await until(lambda: over == ["sb-1"])
    assert not writer.is_writing("sb-1")
    assert writer.waits_until(sandbox("1")) == 5.0
    assert writer.waits_until(sandbox("2")) is None
    now = 5.0
    assert writer.waits_until(sandbox("1")) is None
    await writer.close()


async def test_one_that_was_refused_waits_as_long() -> None:
    over: list[str] = []
    writer = StatusWriter(clock=lambda: 1.0, written=over.append)

    async def refused() -> None:
        raise KubeError(status=422, reason="Invalid", message="no")

    assert writer.write(sandbox("1"), refused)
    await until(lambda: over == ["sb-1"])
    assert writer.waits_until(sandbox("1")) == 6.0
    await writer.close()
