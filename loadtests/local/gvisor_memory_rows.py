"""Memory under gVisor: the usable share of a sandbox's limit, and losses to code that exhausts memory."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator

import httpx

from loadtests.reading import Reading
from tests.executor.gvisor import GvisorPod
from tests.sidecar import hogs
from tests.sidecar.gvisor_sidecar import GvisorSidecar

ROWS = ("gvisor_memory_usable", "gvisor_hogs_lost")
HOGS = 200
USED = 1 << 30  # bytes of the sandbox that is filled step by step: Python's own memory is 1 % of it
LIMIT = 256 << 20
ABOVE = 512 << 20  # of the pod above the sandbox: memoryHeadroom and sidecarMemoryLimit of the chart
MIB = 1 << 20


async def memory(*, count: int = HOGS) -> dict[str, Reading]:
    """Measure both rows."""
    async with _sandbox(USED) as box:
        told = await box.exec(["python3", "-c", hogs.COUNTS], timeout=300)
        assert told["verdict"] == "oom", told
        share = int(told["stdout"].split()[-1]) * MIB / USED
    usable = Reading(value=share, parts={"of": f"{USED // MIB} MiB"})
    return {ROWS[0]: usable, ROWS[1]: await _hogs(count)}


async def _hogs(count: int) -> Reading:
    kinds = itertools.cycle(hogs.FAST.values())
    verdicts: Counter[str] = Counter()
    lost = done = highest = 0
    while done < count:
        async with _sandbox(LIMIT) as box:
            while done < count:
                verdict = await _verdict(box, next(kinds))
                verdicts[verdict] += 1
                done += 1
                highest = max(highest, box.pod.peak_memory - LIMIT)
                if not await _lives(box):
                    lost += 1
                    break
    wrong = done - verdicts["oom"]
    parts = {
        "of": str(done),
        "verdicts": ", ".join(f"{name} {number}" for name, number in verdicts.most_common()),
        "highest above the limit": f"{highest // MIB} MiB of {ABOVE // MIB}",
    }
    return Reading(value=float(max(lost, wrong)), parts=parts)


async def _verdict(box: GvisorSidecar, program: str) -> str:
    body = {"command": ["python3", "-c", program], "env": {"LIMIT": str(LIMIT)}, "timeout": 60}
    try:
        answer = await box.call("POST", "/v1/exec", json=body, timeout=90)
    except httpx.TransportError as error:
        return type(error).__name__
    return str(answer.json().get("verdict"))


async def _lives(box: GvisorSidecar) -> bool:
    try:
        return (await box.exec("echo on", timeout=30))["stdout"] == "on\n"
    except httpx.TransportError:
        return False


@contextlib.asynccontextmanager
async def _sandbox(limit: int) -> AsyncIterator[GvisorSidecar]:
    box = GvisorSidecar(GvisorPod(memory=limit + ABOVE))
    try:
        await asyncio.to_thread(box.pod.start)
        await box.start()
        await box.claim(limits={"memory": limit, "pids": 256})
        yield box
        # A lost sandbox cannot end normally; close removes the rest all the same.
        with contextlib.suppress(*([] if await _lives(box) else [AssertionError])):
            await box.close()
    finally:
        await asyncio.to_thread(box.pod.close)
