"""Cost of a reset in bare spawns of the same sandbox: in this machine's namespaces and in a gVisor pod."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator

from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median, percentile

from loadtests.floors import COMMAND, IN_SANDBOX
from loadtests.reading import Reading
from tests.executor.gvisor import GvisorPod, find_runsc
from tests.sidecar.gvisor_sidecar import GvisorSidecar
from tests.sidecar.support import Sidecar

LOCAL, GVISOR = "reset_over_spawn_local", "reset_over_spawn_gvisor"
ROUNDS = 25
SPAWNS = 8  # spawns in the sandbox, in each round
DISK = 64 << 20
# What an owner leaves behind: some files and a waiting process.
DIRT = "mkdir /dirt && cd /dirt && touch $(seq 200) && echo x >> /etc/passwd && (sleep 5555 &)"


def left_out(row: str) -> str | None:
    """Return why this row cannot be measured on this machine, else None, also for other rows."""
    if row not in (LOCAL, GVISOR):
        return None
    if os.geteuid() != 0:
        return "it needs root"
    if row == GVISOR and find_runsc() is None:
        return "it needs runsc, which `make cluster` builds"
    return None


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
    async with _pod() as box:
        return {GVISOR: await measure(box, rounds=rounds)}


@contextlib.asynccontextmanager
async def _pod() -> AsyncIterator[GvisorSidecar]:
    box = GvisorSidecar(GvisorPod(volume=DISK))
    try:
        await asyncio.to_thread(box.pod.start)
        await box.start()
        yield box
        await box.close()
    finally:
        await asyncio.to_thread(box.pod.close)


async def measure(box: Sidecar, *, rounds: int) -> Reading:
    """Measure the p50 of a reset request over the p50 of a spawn in the sandbox, taken between the resets.

    The next owner's wait is reported too: a reset must not become cheap at its expense.
    """
    resets: list[float] = []
    nexts: list[float] = []
    spawns: list[float] = []
    ratios: list[float] = []
    for _ in range(rounds):
        begun = time.perf_counter()
        await box.claim()
        assert (await box.exec(list(COMMAND)))["exit_code"] == 0
        nexts.append(time.perf_counter() - begun)
        floor = await box.exec(["python3", "-S", "-c", IN_SANDBOX, str(SPAWNS), *COMMAND])
        found = json.loads(floor["stdout"])
        assert (await box.exec(DIRT))["exit_code"] == 0
        begun = time.perf_counter()
        answer = await box.instance("POST", "/v1/reset", json={})
        resets.append(time.perf_counter() - begun)
        document = answer.json()
        assert (document["equal"], document["phase"]) == (True, "warm"), document
        spawns += found
        ratios.append(resets[-1] / median(found))
    return Reading(
        value=median(ratios),
        parts={
            "reset p50": as_time(median(resets)),
            "p90": as_time(percentile(resets, 0.9)),
            "spawn in the sandbox p50": as_time(median(spawns)),
            "the next claim and its first command p50": as_time(median(nexts[1:])),
        },
        curves={"reset": resets, "spawn in the sandbox": spawns, "next claim and first command": nexts[1:]},
    )
