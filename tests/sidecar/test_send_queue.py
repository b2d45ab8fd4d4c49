"""The server's sends to the executor and to runners: in order, with their descriptors, and never blocking."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import pytest
from sandlot_sidecar.core.errors import ApiError
from sandlot_sidecar.executor import wire
from sandlot_sidecar.server.executor_client import MOST_WAITING, ExecutorClient, ExecutorGone
from sandlot_sidecar.server.runners import Runner

PATH = "/" + "x" * 4000


class Channel:
    """A runner's channel whose other end is the test's."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.theirs.setblocking(False)
        self.lost = asyncio.Event()
        self.runner = Runner(ours, pid=1, loop=asyncio.get_running_loop())
        self.runner.on_lost = self.lost.set

    async def receive(self) -> tuple[dict[str, Any], list[int]]:
        async with asyncio.timeout(20):
            while True:
                try:
                    received = wire.receive_packet(self.theirs)
                except BlockingIOError:
                    await asyncio.sleep(0.001)
                    continue
                assert received is not None
                return received

    def close(self) -> None:
        self.runner.close()
        self.theirs.close()


async def test_what_a_busy_runner_does_not_read_waits_with_its_descriptors_in_order() -> None:
    channel = Channel()
    sent = []
    for number in range(600):
        memory = os.memfd_create(str(number))
        sent.append((number, os.fstat(memory).st_ino))
        # Every tenth travels in a memfd of its own.
        filler = "x" * (wire.MAX_PACKET if number % 10 == 0 else 1000)
        channel.runner.send({"number": number, "filler": filler}, (memory,))
        os.close(memory)
    assert channel.runner.unsent > 300
    received = []
    for _ in range(600):
        message, (fd,) = await channel.receive()
        received.append((message["number"], os.fstat(fd).st_ino))
        os.close(fd)
    assert received == sent
    assert channel.runner.unsent == 0
    # Nothing is watched any more, and sending goes on.
    channel.runner.send({"number": 600})
    assert (await channel.receive())[0] == {"number": 600}
    channel.close()


@pytest.mark.parametrize("hangs_up", ["we", "they"])
async def test_what_waits_for_a_runner_that_is_lost_is_closed(hangs_up: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    channel = Channel()
    memory = os.memfd_create("sent")
    while channel.runner.unsent < 20:
        channel.runner.send({"filler": "x" * 1000}, (memory,))
    os.close(memory)
    if hangs_up == "we":
        channel.runner.close()
    else:
        channel.theirs.close()
        await asyncio.wait_for(channel.lost.wait(), 20)
    assert (channel.runner.unsent, channel.runner.lost) == (0, True)
    channel.close()
    assert len(os.listdir("/proc/self/fd")) <= before  # the garbage collector may have closed others


class Executor:
    """The other end of the control socket."""

    def __init__(self) -> None:
        ours, self.sock = socket.socketpair()
        self.sock.setblocking(False)
        self.client = ExecutorClient(ours)
        self.client.start()
        self._decoder = wire.Decoder()
        self.requests: list[dict[str, Any]] = []

    async def read(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.requests) < count:
                try:
                    messages = self._decoder.receive(self.sock)
                except BlockingIOError:
                    await asyncio.sleep(0.001)
                    continue
                self.requests += [message for message, _ in messages or []]


async def test_a_busy_executor_holds_nobody_and_too_many_requests_are_refused() -> None:
    executor = Executor()
    tasks = [
        asyncio.create_task(executor.client.ask("file", op="stat", path=f"{PATH}{number}"))
        for number in range(MOST_WAITING)
    ]
    await asyncio.sleep(0)  # each has sent, or waits, by now
    with pytest.raises(ApiError) as refused:
        await executor.client.ask("file", op="stat", path="/")
    assert (refused.value.status, refused.value.code) == (503, "busy")
    # What ends an upload, or an op, is taken all the same.
    tasks.append(asyncio.create_task(executor.client.ask("file", op="abort")))
    tasks.append(asyncio.create_task(executor.client.ask("kill", runner=7)))
    await asyncio.sleep(0)
    await executor.read(MOST_WAITING + 2)
    paths = [request.get("path") for request in executor.requests]
    assert paths == [*(f"{PATH}{number}" for number in range(MOST_WAITING)), None, None]
    for request in executor.requests:
        wire.send(executor.sock, {"seq": request["seq"], "ok": True})
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    executor.client.close()
    executor.sock.close()


async def test_who_waits_for_a_busy_executor_hears_of_its_end() -> None:
    executor = Executor()
    tasks = [
        asyncio.create_task(executor.client.ask("file", op="stat", path=PATH)) for _ in range(MOST_WAITING)
    ]
    await asyncio.sleep(0)
    executor.sock.close()
    answers = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
    assert {type(answer) for answer in answers} == {ExecutorGone}
    executor.client.close()
