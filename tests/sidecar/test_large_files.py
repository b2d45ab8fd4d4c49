"""Large files: as much memory and as many descriptors as before, also when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.sidecar.calls import put
from tests.sidecar.processes import resident
from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = pytest.mark.root


async def test_large_files_stream_with_flat_memory(make) -> None:
    """A gigabyte each way; the memory does not know the size, so 5 GB are the same."""
    size = 1 << 30
    box = await make(root={"disk": 3 << 30}, limits={"memory": 3 << 30, "pids": 100}, claim={})
    await put(box, "/warm", b"x" * 1_000_000)
    before = resident(box.pid)
    peak = before
    block = bytes(1 << 20)

    async def zeros() -> AsyncIterator[bytes]:
        nonlocal peak
        for number in range(size >> 20):
            if number % 64 == 0:
                peak = max(peak, resident(box.pid))
            yield block

    answer = await box.call("PUT", "/v1/files?path=/large", content=zeros())
    assert answer.json()["size"] == size
    received = 0
    async with box.stream("GET", "/v1/files?path=/large") as download:
        async for part in download.aiter_raw(1 << 20):
            received += len(part)
            if received % (64 << 20) == 0:
                peak = max(peak, resident(box.pid))
    assert received == size
    assert peak - before < 8 << 20
    quick = await asyncio.wait_for(box.exec("echo alive"), 50)
    assert quick["stdout"] == "alive\n"


async def test_a_client_that_leaves_a_download_leaks_nothing(box: Sidecar) -> None:
    await box.exec("head -c 20000000 /dev/zero > /tmp/z")
    before = box.descriptors()
    for _ in range(5):
        async with box.stream("GET", "/v1/files?path=/tmp/z") as download:
            async for _part in download.aiter_raw():
                break
    await box.reconnect()
    await box.exec("true")
    await until(lambda: few_descriptors(box, before))


async def few_descriptors(box: Sidecar, before: tuple[int, int]) -> bool:
    return box.descriptors()[0] <= before[0]
