"""Commands through the gateway against spawning in the same pod, and against `pods/exec`."""

from __future__ import annotations

import asyncio
import json
import time

from sandlot import Client, Sandbox
from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median, percentile

from loadtests.cluster.baseline import pods_exec, pods_exec_rate
from loadtests.cluster.site import Site
from loadtests.floors import COMMAND, IN_SANDBOX
from loadtests.local.exec_rows import CALLERS, SANDBOXES, execs
from loadtests.reading import Reading

BATCH = 16


async def latency(site: Site, runtime: str, *, rounds: int = 12) -> dict[str, Reading]:
    """Measure `exec_RUNTIME` and `pods_exec_RUNTIME`: p50 of one caller over the spawn, `pods/exec` over it."""
    async with site.pool(runtime, size=1, reuse="never") as pool:
        box = await pool.create()
        pod = await pool.pod_of(box)
        await pool.full(1)
        found = await asyncio.to_thread(_latency, site, box.id, pod, rounds)
    ours, spawns, theirs = found
    curves = {
        f"exec, {runtime}": ours,
        f"spawn in the pod, {runtime}": spawns,
        f"pods/exec, {runtime}": theirs,
    }
    parts = {
        "exec p50": as_time(median(ours)),
        "exec p99": as_time(percentile(ours, 0.99)),
        "spawn in the pod p50": as_time(median(spawns)),
    }
    against = {"pods/exec p50": as_time(median(theirs)), "exec p50": as_time(median(ours))}
    return {
        f"exec_{runtime}": Reading(value=median(ours) / median(spawns), parts=parts, curves=curves),
        f"pods_exec_{runtime}": Reading(value=median(theirs) / median(ours), parts=against),
    }


def _latency(
    site: Site, sandbox_id: str, pod: str, rounds: int
) -> tuple[list[float], list[float], list[float]]:
    """Time each in turn, in seconds: through the gateway, spawned in the pod, by `pods/exec`."""
    ours: list[float] = []
    spawns: list[float] = []
    theirs: list[float] = []
    core = site.core()
    namespace = site.stack.sandboxes
    with Client(url=site.url, api_key=site.api_key) as client:
        box = Sandbox.connect(sandbox_id, client=client)
        for _ in range(BATCH):
            assert box.exec(COMMAND).exit_code == 0
        pods_exec(core, namespace=namespace, pod=pod)
        for _ in range(rounds):
            told = box.exec(["python3", "-S", "-c", IN_SANDBOX, str(BATCH), *COMMAND], timeout=60)
            assert told.exit_code == 0, told
            spawns += json.loads(told.stdout)
            for _ in range(BATCH):
                begun = time.perf_counter()
                result = box.exec(COMMAND)
                ours.append(time.perf_counter() - begun)
                assert result.exit_code == 0, result
            theirs += [pods_exec(core, namespace=namespace, pod=pod) for _ in range(3)]
    return ours, spawns, theirs


async def rate(
    site: Site, runtime: str, *, rounds: int = 3, seconds: float = 3.0, theirs_seconds: float = 8.0
) -> dict[str, Reading]:
    """Measure `pods_exec_rate_RUNTIME`: commands/s of 64 callers over 8 sandboxes, ours over theirs."""
    ours: list[float] = []
    theirs: list[float] = []
    times: list[float] = []
    refused = 0
    async with site.pool(runtime, size=SANDBOXES, reuse="never") as pool:
        boxes = await asyncio.gather(*(pool.create() for _ in range(SANDBOXES)))
        pods = [await pool.pod_of(box) for box in boxes]
        await pool.full(SANDBOXES, timeout=180)
        await execs(boxes, seconds=2.0)
        for _ in range(rounds):
            found_there = await asyncio.to_thread(
                pods_exec_rate,
                site.core,
                namespace=site.stack.sandboxes,
                pods=pods,
                callers=CALLERS,
                seconds=theirs_seconds,
            )
            theirs.append(found_there.rate)
            refused += found_there.failures
            found, spent = await execs(boxes, seconds=seconds)
            ours.append(found)
            times += spent
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    parts = {
        "rounds": ", ".join(f"{ratio:.0f}" for ratio in ratios),
        "execs/s": f"{median(ours):.0f}",
        "pods/exec/s": f"{median(theirs):.1f}",
        "of them failed": str(refused),
        "p50": as_time(median(times)),
        "p99": as_time(percentile(times, 0.99)),
    }
    curves = {f"exec, 64 callers, {runtime}": times}
    return {f"pods_exec_rate_{runtime}": Reading(value=median(ratios), parts=parts, curves=curves)}
