"""Short rollouts (create, echo, delete) by 8 callers: pods that are reset against replaced ones, and against bare spawns."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median, percentile

from loadtests.cluster.rate_rows import SECONDS as SPAWN_SECONDS
from loadtests.cluster.rate_rows import spawned
from loadtests.cluster.site import Pool, Site
from loadtests.reading import Reading

ROWS = ("churn_over_replace", "churn_over_spawns")
CALLERS = 8
SECONDS = {"tenant": 15.0, "never": 40.0}  # by reuse policy: replacing pods takes seconds each


@dataclass(slots=True)
class Churn:
    """The rollouts of one pool in so many seconds: their times, and the pods that were created for them."""

    seconds: float
    times: list[float] = field(default_factory=list)
    pods: int = 0
    spawns: float = 0.0  # a second, of a loop in each of CALLERS sandboxes

    @property
    def rate(self) -> float:
        return len(self.times) / self.seconds


async def churn(site: Site, runtime: str) -> dict[str, Reading]:
    """Measure `churn_over_replace_RUNTIME` and `churn_over_spawns_RUNTIME`.

    Rollouts/s with the policy `tenant` ÷ those with `never`, and ÷ bare spawns/s in the same pods.
    """
    replaced = await _churn(site, runtime, policy="never")
    reused = await _churn(site, runtime, policy="tenant")
    parts = {
        "rollouts/s": f"{reused.rate:.1f}",
        "p50": as_time(median(reused.times)),
        "p99": as_time(percentile(reused.times, 0.99)),
        "pods created": str(reused.pods),
        "rollouts/s, replaced": f"{replaced.rate:.1f}",
        "p50, replaced": as_time(median(replaced.times)),
        "pods created, replaced": str(replaced.pods),
    }
    curves = {f"rollout, {CALLERS} callers, {runtime}": reused.times}
    spawns = {"rollouts/s": f"{reused.rate:.1f}", "bare spawns/s": f"{reused.spawns:.0f}"}
    return {
        f"churn_over_replace_{runtime}": Reading(
            value=reused.rate / replaced.rate, parts=parts, curves=curves
        ),
        f"churn_over_spawns_{runtime}": Reading(value=reused.rate / reused.spawns, parts=spawns),
    }


async def _churn(site: Site, runtime: str, *, policy: str) -> Churn:
    async with site.pool(runtime, size=CALLERS, reuse=policy) as pool:
        found = await churned(pool, seconds=SECONDS[policy])
        if policy == "tenant":
            boxes = await asyncio.gather(*(pool.create() for _ in range(CALLERS)))
            count, _ = await spawned(boxes)
            found.spawns = count / SPAWN_SECONDS
    return found


async def churned(pool: Pool, *, seconds: float, image: str | None = None) -> Churn:
    """Run rollouts of all callers; a pool of slots needs an `image`."""
    found = Churn(seconds)
    before = await _pods(pool)
    end = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(_rollouts(pool, found, image=image, end=end))
    found.pods = len(await _pods(pool) - before)
    return found


async def _rollouts(pool: Pool, found: Churn, *, image: str | None, end: float) -> None:
    while (began := time.monotonic()) < end:
        box = await pool.create(image)
        result = await box.exec(["sh", "-c", "echo hi"], check=True)
        assert result.stdout == "hi\n", result
        await box.delete()
        if (now := time.monotonic()) <= end:
            found.times.append(now - began)


async def _pods(pool: Pool) -> set[str]:
    return {pod.metadata.name for pod in await pool.pods()}
