"""The process around the gateway: a frozen start-up heap, prompt packets, full queues answered at once."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import stat
import sys
import time
from collections.abc import AsyncIterator

import httpx
import psutil
import pytest

from tests.gateway.conftest import Running, running
from tests.waiting import until


async def test_the_start_up_heap_is_frozen(state_dir, machine) -> None:
    gc.unfreeze()
    async with running(state_dir, machine):
        assert gc.get_freeze_count() > 10_000
    gc.unfreeze()


async def test_a_full_sandbox_and_a_full_gateway_refuse_at_once(state_dir, machine) -> None:
    async with running(state_dir, machine, max_running=1, max_queued=1, max_total=3) as box:
        one, two = await box.create(), await box.create()
        hold = asyncio.Event()
        for made in (one, two):
            box.machine.of_sandbox(made["id"]).hold = hold

        def run(made: dict) -> asyncio.Task:
            url = f"/sbx/{made['id']}/exec"
            return asyncio.create_task(box.client.post(url, json={"command": "x"}))

        breaker = box.gateway.data.breaker
        taken = []
        for made, running_now, waiting in ((one, 1, 0), (one, 1, 1)):
            taken.append(run(made))
            await until(lambda now=(running_now, waiting): (breaker.running, breaker.waiting) == now)
        began = time.monotonic()
        refused = await run(one)
        assert (refused.status_code, refused.json()["scope"]) == (503, "sandbox")
        assert refused.headers["retry-after"] == "1"
        taken.append(run(two))
        await until(lambda: breaker.running == 2)
        refused = await run(two)
        assert (refused.status_code, refused.json()["scope"]) == (503, "gateway")
        assert refused.json()["may_have_run"] is False
        assert time.monotonic() - began < 20
        hold.set()
        assert [(await task).status_code for task in taken] == [200, 200, 200]


async def test_a_connection_outlives_the_time_that_clients_keep_theirs_unused(box: Running) -> None:
    """httpx keeps one for 5 s: closed here just then, a command that was sent into it was lost."""
    url = httpx.URL(box.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        for pause in (5.5, 0):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            await asyncio.sleep(pause)
    finally:
        writer.close()
        await writer.wait_closed()


async def test_connections_do_not_wait_to_fill_packets(box: Running) -> None:
    made = await box.create()
    path = f"/api/v1/sandbox/{made['id']}/expose"
    exposed = (await box.client.post(path, json={"port": 1, "protocol": "TCP"})).json()
    ports = [int(box.url.rpartition(":")[2]), exposed["external_port"]]
    _, writer = await asyncio.open_connection("127.0.0.1", ports[1])
    for port in ports:
        found = await until(lambda port=port: accepted(port))
        assert all(found), f"port {port}"
    writer.close()
    await writer.wait_closed()


def accepted(port: int) -> list[int]:
    """TCP_NODELAY of each connection that this process has accepted on a port."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode):
                continue
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as one:
            if one.family == socket.AF_INET and one.getsockname()[1] == port:
                one.getpeername()  # raises for the listener
                found.append(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
    return found


_MIB = 1 << 20


async def test_a_body_is_not_kept_before_the_credential_is_known(box: Running) -> None:
    """The answer comes while nearly all of the body is still to be sent."""
    reader, writer = await connect(box)
    head = f"POST /api/v1/sandbox HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer guess\r\nContent-Length: {2 * _MIB}\r\n\r\n"
    try:
        writer.write(head.encode() + b"x")
        async with asyncio.timeout(10):  # less than the time that a body may take
            assert (await reader.readline()).split()[1] == b"401"
            assert (await reader.read()).endswith(b"}")  # and it is closed
    finally:
        writer.close()


async def test_a_head_without_an_end_is_not_kept(box: Running) -> None:
    reader, writer = await connect(box)
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nX-Long: " + bytes(b"x" * (96 << 10)))
        async with asyncio.timeout(10):
            assert (await reader.readline()).split()[1] == b"431"
    finally:
        writer.close()


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/sandbox", "/sbx/none/exec"])
@pytest.mark.parametrize("start", [b"0\r\nX: ", b"5\r\nhello\r\n5;x="], ids=["trailer", "extension"])
async def test_what_frames_a_body_is_not_kept_without_an_end(box: Running, path: str, start: bytes) -> None:
    _, writer = await connect(box)
    try:
        writer.write(
            b"POST %b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" % path.encode() + start
        )
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent <= 4 * _MIB:
                writer.write(b"x" * 65536)
                await asyncio.wait_for(writer.drain(), 60)
                sent += 65536
        assert sent < 4 * _MIB  # it was cut
    finally:
        writer.close()


async def test_a_body_of_many_small_chunks_is_taken(box: Running) -> None:
    async def spaces() -> AsyncIterator[bytes]:
        for _ in range(20_000):  # 6 bytes each, of which one is the body's
            yield b" "

    answer = await box.client.post("/api/v1/sandbox", content=spaces())
    assert (answer.status_code, answer.request.headers["transfer-encoding"]) == (422, "chunked"), answer.text


async def connect(box: Running) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = box.url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


_STRANGERS = r"""
import asyncio, sys
# All of it is on its way before the gateway looks at the first.
async def one(path):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer guess\r\nContent-Length: 8388608\r\n\r\n"
    writer.write(head.encode() + bytes(200_000))
    answer = await reader.readline()
    writer.transport.abort()
    return answer.split()[1].decode()
async def main():
    paths = ["/api/v1/sandbox", f"/sbx/{sys.argv[2]}/files?path=/x", f"/sbx/{sys.argv[2]}/exec"] * 250
    print(sorted(set(await asyncio.gather(*map(one, paths)))))
asyncio.run(main())
"""


async def test_bodies_of_strangers_are_dropped_as_they_come(box: Running) -> None:
    """750 at once without a credential, on the control plane and the data plane: each is answered, none is kept."""
    made = await box.create()
    own = psutil.Process()
    before = own.memory_info().rss
    attack = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _STRANGERS, box.url.rpartition(":")[2], made["id"]),
        stdout=asyncio.subprocess.PIPE,
    )
    assert attack.stdout is not None
    most = before
    answered = asyncio.ensure_future(attack.communicate())
    while not answered.done():
        most = max(most, own.memory_info().rss)
        await asyncio.wait([answered], timeout=0.01)
    assert (await answered)[0] == b"['401']\n"
    assert most - before < 24 * _MIB, f"{(most - before) / _MIB:.0f} MiB"
