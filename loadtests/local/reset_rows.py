"""Cost of a reset in bare spawns of the same sandbox: in this machine's namespaces and in a gVisor pod."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator

from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median, percentile

from loadtests.floors import COMMAND, IN_SANDBOX
from loadtests.reading import Reading
from tests.executor.gvisor import GvisorPod
from tests.sidecar.gvisor_sidecar import GvisorSidecar
from tests.sidecar.support import Sidecar

LOCAL, GVISOR = "reset_over_spawn_local", "reset_over_spawn_gvisor"
ROUNDS = 25
AT_ONCE = 8  # rounds whose owner leaves no idle moment
IDLE = 0.8  # seconds for which an owner runs nothing, as a model that writes its next command
SPAWNS = 8  # spawns in the sandbox, in each round
DISK = 64 << 20
# What an owner leaves behind: some files and a waiting process.
DIRT = "mkdir /dirt && cd /dirt && touch $(seq 200) && echo x >> /etc/passwd && (sleep 5555 &)"


async def local(*, rounds: int = ROUNDS) -> dict[str, Reading]:
    """Measure a sandbox on this machine's kernel."""
    box = Sidecar()
    try:
        await box.start()
        return {LOCAL: await measure(box, rounds=rounds)}
    finally:
        await box.close()


async def gvisor(*, rounds: int = ROUNDS) -> dict[str, Reading]:
    """Measure a gVisor pod, whose volume gVisor itself keeps."""
    async with gvisor_pod() as box:
        return {GVISOR: await measure(box, rounds=rounds)}


@contextlib.asynccontextmanager
async def gvisor_pod() -> AsyncIterator[GvisorSidecar]:
    """Run a sidecar in a gVisor pod with a volume of `DISK` bytes."""
    box = GvisorSidecar(GvisorPod(volume=DISK))
    try:
        await asyncio.to_thread(box.pod.start)
        await box.start()
        yield box
        await box.close()
    finally:
        await asyncio.to_thread(box.pod.close)


async def measure(box: Sidecar, *, rounds: int, at_once: int = AT_ONCE) -> Reading:
    """Measure the p50 of a reset request over the p50 of a spawn in the sandbox, taken between the resets.

    The next owner's wait is reported too: a reset must not become cheap at its expense. So is a reset after an owner
    that was never idle, whose next generation could not be prepared.
    """
    busy = _Times()
    for _ in range(at_once):
        await _round(box, busy, idle=0.0)
    times = _Times()
    for _ in range(rounds):
        await _round(box, times, idle=IDLE)
    return Reading(
        value=median(times.ratios),
        parts={
            "reset p50": as_time(median(times.resets)),
            "p90": as_time(percentile(times.resets, 0.9)),
            "spawn in the sandbox p50": as_time(median(times.spawns)),
            "the next claim and its first command p50": as_time(median(times.nexts[1:])),
            "after an owner that was never idle": f"{median(busy.ratios):.1f}",
        },
        curves={
            "reset": times.resets,
            "spawn in the sandbox": times.spawns,
            "next claim and first command": times.nexts[1:],
        },
    )


class _Times:
    """Seconds of each reset, of claims with their first command, and of spawns."""

    def __init__(self) -> None:
        self.resets: list[float] = []
        self.nexts: list[float] = []
        self.spawns: list[float] = []
        self.ratios: list[float] = []


async def _round(box: Sidecar, times: _Times, *, idle: float) -> None:
    begun = time.perf_counter()
    await box.claim()
    assert (await box.exec(list(COMMAND)))["exit_code"] == 0
    times.nexts.append(time.perf_counter() - begun)
    await asyncio.sleep(idle)
    floor = await box.exec(["python3", "-S", "-c", IN_SANDBOX, str(SPAWNS), *COMMAND])
    found = json.loads(floor["stdout"])
    assert (await box.exec(DIRT))["exit_code"] == 0
    begun = time.perf_counter()
    answer = await box.instance("POST", "/v1/reset", json={})
    times.resets.append(time.perf_counter() - begun)
    document = answer.json()
    assert (document["equal"], document["phase"]) == (True, "warm"), document
    times.spawns += found
    times.ratios.append(times.resets[-1] / median(found))
