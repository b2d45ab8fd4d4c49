"""Exec through the gateway against spawning in place: the latency of one caller, the rate of 64."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import cycle

from sandlot import AsyncClient, AsyncSandbox, Client, Sandbox
from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median, percentile

from loadtests.floors import COMMAND, spawn_once, spawn_rate
from loadtests.reading import Reading

CALLERS = 64
SANDBOXES = 8


def latency(client: Client, *, rounds: int = 25, batch: int = 16) -> Reading:
    """Measure p50 of the synchronous SDK's `exec` over p50 of `subprocess.run`, in alternating batches."""
    through: list[float] = []
    in_place: list[float] = []
    with Sandbox.create(client=client) as box:
        for _ in range(batch):
            assert box.exec(COMMAND).exit_code == 0
            spawn_once()
        for _ in range(rounds):
            for _ in range(batch):
                in_place.append(spawn_once())
            for _ in range(batch):
                begun = time.perf_counter()
                result = box.exec(COMMAND)
                through.append(time.perf_counter() - begun)
                assert result.exit_code == 0, result
    return Reading(
        value=median(through) / median(in_place),
        parts={
            "exec p50": as_time(median(through)),
            "exec p99": as_time(percentile(through, 0.99)),
            "in place p50": as_time(median(in_place)),
        },
        curves={"exec through the gateway": through, "subprocess.run in place": in_place},
    )


async def rate(client: AsyncClient, *, rounds: int = 6, seconds: float = 2.5) -> Reading:
    """Measure execs per second of 64 callers in one process over the rate of bare spawn loops, median of rounds.

    The windows alternate and are short, so that other load on the machine slows both sides of a ratio, and long
    enough for the gateway to detect busy cores (0.2 s).
    """
    floors: list[float] = []
    spread: list[float] = []
    single: list[float] = []
    latencies: list[float] = []
    boxes = await asyncio.gather(*(AsyncSandbox.create(client=client) for _ in range(SANDBOXES)))
    try:
        await execs(boxes, seconds=2.0)
        for _ in range(rounds):
            floors.append(await asyncio.to_thread(spawn_rate, seconds=seconds))
            found, times = await execs(boxes, seconds=seconds)
            spread.append(found)
            latencies += times
            single.append((await execs(boxes[:1], seconds=seconds))[0])
    finally:
        await asyncio.gather(*(box.delete() for box in boxes))
    ratios = [through / floor for through, floor in zip(spread, floors, strict=True)]
    return Reading(
        value=median(ratios),
        parts={
            "rounds": f"{min(ratios):.2f} to {max(ratios):.2f}",
            f"execs/s, {SANDBOXES} sandboxes": f"{median(spread):.0f}",
            "execs/s, one sandbox": f"{median(single):.0f}",
            "bare spawns/s": f"{median(floors):.0f}",
            "p50": as_time(median(latencies)),
            "p99": as_time(percentile(latencies, 0.99)),
        },
        curves={"exec, 64 callers": latencies},
    )


async def execs(
    boxes: list[AsyncSandbox],
    *,
    seconds: float,
    callers: int = CALLERS,
    command: Sequence[str] = COMMAND,
) -> tuple[float, list[float]]:
    """Return the execs per second, and the seconds of each, with so many callers over the boxes.

    As in the floor's loops, execs that end after the window do not count, nor does the time until they end.
    """
    end = time.perf_counter() + seconds
    times: list[float] = []
    count = 0

    async def caller(box: AsyncSandbox) -> None:
        nonlocal count
        while (begun := time.perf_counter()) < end:
            result = await box.exec(list(command))
            ended = time.perf_counter()
            times.append(ended - begun)
            count += ended <= end
            assert result.exit_code == 0, result

    async with asyncio.TaskGroup() as group:
        for _, box in zip(range(callers), cycle(boxes), strict=False):
            group.create_task(caller(box))
    return count / seconds, times
