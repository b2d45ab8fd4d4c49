"""Commands per second through the gateway against bare spawns in the same sandboxes, in turn, with their CPU."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from sandlot import AsyncSandbox
from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median, percentile

from loadtests.cluster.pod_cpu import PodCpu
from loadtests.cluster.site import Pool, Site
from loadtests.local.exec_rows import execs
from loadtests.reading import Reading

SANDBOXES = 8
CALLERS = (8, 64)
ROUNDS = 4
SECONDS = 5.0
PREPARED = 5.0  # seconds until eight Python loops have started, also under gVisor
COMMAND = ("sh", "-c", "echo hi")
# One loop in each sandbox, all started at one moment of the nodes' clocks; later ends do not count.
_BARE = """
import subprocess, sys, time
command = sys.argv[3:]
subprocess.run(command, capture_output=True, check=True)
begin = float(sys.argv[1])
end = begin + float(sys.argv[2])
assert time.time() < begin, "the machine is too slow to begin at one moment"
time.sleep(begin - time.time())
count = -1
while time.time() <= end:
    count += 1
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"hi\\n"
print(count)
"""


@dataclass(slots=True)
class _Side:
    """Results of one way to run commands: rates by round, total count, CPU seconds by part, seconds of each."""

    rates: list[float] = field(default_factory=list)
    commands: int = 0
    cpu: dict[str, float] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)

    def add(self, *, rate: float, commands: int, cpu: dict[str, float]) -> None:
        self.rates.append(rate)
        self.commands += commands
        for part, seconds in cpu.items():
            self.cpu[part] = self.cpu.get(part, 0.0) + seconds

    def cpu_a_command(self) -> str:
        """Return the CPU milliseconds of one command, by part."""
        if not self.cpu:
            return "not seen from here"
        return ", ".join(f"{part} {used / self.commands * 1000:.1f} ms" for part, used in self.cpu.items())


async def rates(site: Site, runtime: str) -> dict[str, Reading]:
    """Measure `rate_8_RUNTIME` and `rate_64_RUNTIME`: callers over 8 sandboxes ÷ a loop of spawns in each."""
    async with site.pool(runtime, size=SANDBOXES, reuse="never") as pool:
        boxes = await asyncio.gather(*(pool.create() for _ in range(SANDBOXES)))
        await pool.full(SANDBOXES, timeout=180)
        cpu = PodCpu(await _parts(site, pool, boxes), processes={"client": os.getpid()})
        bare, through = _Side(), {callers: _Side() for callers in CALLERS}
        await execs(boxes, seconds=2.0, callers=max(CALLERS), command=COMMAND)
        for _ in range(ROUNDS):
            count, used = await spawned(boxes, cpu)
            bare.add(rate=count / SECONDS, commands=count, cpu=used)
            for callers, side in through.items():
                await _called(side, boxes, callers, cpu)
    return {
        f"rate_{callers}_{runtime}": _reading(side, bare, callers=callers, runtime=runtime)
        for callers, side in through.items()
    }


async def _parts(site: Site, pool: Pool, boxes: Sequence[AsyncSandbox]) -> dict[str, str]:
    """Return the pods whose CPU is reported, by uid: the sandboxes' and the gateways'."""
    names = {await pool.pod_of(box) for box in boxes}
    found = {pod.metadata.uid: "sandboxes" for pod in await pool.pods() if pod.metadata.name in names}
    for pod in await site.pods(component="gateway"):
        found[pod["metadata"]["uid"]] = "gateway"
    return found


async def spawned(boxes: Sequence[AsyncSandbox], cpu: PodCpu | None = None) -> tuple[int, dict[str, float]]:
    """Return how many commands a loop in each sandbox spawned in SECONDS, and the CPU meanwhile."""
    begin = time.time() + PREPARED
    words = ["python3", "-S", "-c", _BARE, str(begin), str(SECONDS), *COMMAND]
    loops = [asyncio.create_task(box.exec(words, timeout=60, check=True)) for box in boxes]
    used: dict[str, float] = {}
    if cpu is not None:
        await asyncio.sleep(begin - time.time())
        before = cpu.look()
        await asyncio.sleep(begin + SECONDS - time.time())
        used = cpu.since(before)
    return sum(int(result.stdout) for result in await asyncio.gather(*loops)), used


async def _called(side: _Side, boxes: list[AsyncSandbox], callers: int, cpu: PodCpu) -> None:
    before = cpu.look()
    rate, times = await execs(boxes, seconds=SECONDS, callers=callers, command=COMMAND)
    side.times += times
    side.add(rate=rate, commands=len(times), cpu=cpu.since(before))


def _reading(side: _Side, bare: _Side, *, callers: int, runtime: str) -> Reading:
    ratios = [through / floor for through, floor in zip(side.rates, bare.rates, strict=True)]
    parts = {
        "rounds": ", ".join(f"{ratio:.2f}" for ratio in ratios),
        "commands/s": f"{median(side.rates):.0f}",
        "bare spawns/s": f"{median(bare.rates):.0f}",
        "p50": as_time(median(side.times)),
        "p99": as_time(percentile(side.times, 0.99)),
        "CPU a command": side.cpu_a_command(),
        "CPU a bare spawn": bare.cpu_a_command(),
    }
    curves = {f"exec, {callers} callers of {SANDBOXES} sandboxes, {runtime}": side.times}
    return Reading(value=median(ratios), parts=parts, curves=curves)
