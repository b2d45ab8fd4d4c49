"""Two thousand commands at once from one process, with a server that answers none before all have arrived."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from sandlot import AsyncClient, AsyncSandbox, Client, Sandbox, SandboxInfo

ANSWER = b'{"stdout":"","stderr":"","exit_code":0,"verdict":"exited","usage":{}}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)
AUTH = {"token": "t", "user_ns": "sbx", "job_id": "sb-1"}


class Barrier:
    """Answers `exec` when `count` of them are waiting; begins the answer of a stream at once and never ends it."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.waiting: list[asyncio.Transport] = []
        self.most = 0
        self.url = ""

    def protocol(self) -> asyncio.Protocol:
        return _Peer(self)

    def arrived(self, transport: asyncio.Transport) -> None:
        self.waiting.append(transport)
        self.most = max(self.most, len(self.waiting))
        if len(self.waiting) >= self.count:
            for waiter in self.waiting:
                waiter.write(HEAD + ANSWER)
            self.waiting.clear()


class _Peer(asyncio.Protocol):
    def __init__(self, barrier: Barrier) -> None:
        self.barrier = barrier
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, end, body = self.buffer.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(body) < length:
            return
        self.buffer = b""
        if b"/ops" in head.split(b"\r\n")[0]:
            self.transport.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        else:
            self.barrier.arrived(self.transport)


@pytest.fixture
async def barrier() -> AsyncIterator[Barrier]:
    barrier = Barrier(2000)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(barrier.protocol, "127.0.0.1", 0, backlog=4096)
    barrier.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield barrier
    server.close()


async def test_two_thousand_tasks(barrier: Barrier) -> None:
    async with AsyncClient(url=barrier.url, api_key="k") as client:
        box = AsyncSandbox(
            client=client, info=SandboxInfo(id="sb-1"), auth={**AUTH, "gateway_url": barrier.url}
        )
        for _ in range(2):
            results = await asyncio.gather(*(box.exec("true", timeout=60) for _ in range(2000)))
            assert all(result.ok for result in results)
    assert barrier.most == 2000


async def test_streams_do_not_take_the_place_of_calls(barrier: Barrier) -> None:
    barrier.count = 1
    async with AsyncClient(url=barrier.url, api_key="k") as client:
        box = AsyncSandbox(
            client=client, info=SandboxInfo(id="sb-1"), auth={**AUTH, "gateway_url": barrier.url}
        )
        streams = await asyncio.gather(*(box.exec("sleep 60", stream=True) for _ in range(700)))
        assert (await asyncio.wait_for(box.exec("true"), 30)).ok
        for stream in streams:
            await stream.stop()


async def test_threads_share_one_client(barrier: Barrier) -> None:
    barrier.count = 200
    client = Client(url=barrier.url, api_key="k")
    box = Sandbox(client=client, info=SandboxInfo(id="sb-1"), auth={**AUTH, "gateway_url": barrier.url})
    ok: list[bool] = []

    def work() -> None:
        for _ in range(3):
            ok.append(box.exec("true", timeout=60).ok)

    threads = [threading.Thread(target=work) for _ in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    client.close()
    assert ok == [True] * 600
    assert barrier.most == 200
