"""Pod starts: how soon a ready pod is claimable, and 64 creates at once."""

from __future__ import annotations

import asyncio
import math
import time

from prometheus_client.parser import text_string_to_metric_families
from sandlot import AsyncSandbox
from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median, percentile

from loadtests.cluster.site import Pool, Site
from loadtests.reading import Reading

POOL = 8
AT_ONCE = 64
_METRIC = "sandlot_ready_seconds"


async def claimable(site: Site, runtime: str) -> dict[str, Reading]:
    """Measure `claimable_RUNTIME`: from a sidecar's readiness to its place in a gateway's queue, ms, p50."""
    before = await _histogram(site)
    async with site.pool(runtime, size=POOL, reuse="never") as pool:
        boxes = await asyncio.gather(*(pool.create() for _ in range(POOL)))
        await pool.full(POOL)
        await asyncio.gather(*(box.delete() for box in boxes))
        after = await _histogram(site)
    counts = {bound: after[bound] - before.get(bound, 0.0) for bound in after}
    total = counts[math.inf]
    parts = {
        "starts": f"{total:.0f}",
        "p90": as_time(quantile(counts, 0.9)),
        "by a gateway's histogram, started": f"up to {POOL} at once",
    }
    return {f"claimable_{runtime}": Reading(value=quantile(counts, 0.5) * 1000, parts=parts)}


async def _histogram(site: Site) -> dict[float, float]:
    """Return the counts by upper bound, over all gateways."""
    counts: dict[float, float] = {}
    for pod in await site.pods(component="gateway"):
        text = await site.metrics(pod["metadata"]["name"])
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == f"{_METRIC}_bucket":
                    bound = float(sample.labels["le"])
                    counts[bound] = counts.get(bound, 0.0) + sample.value
    return counts


def quantile(counts: dict[float, float], share: float) -> float:
    """Interpolate linearly within a bucket, as Prometheus does."""
    total = counts[math.inf]
    if not total:
        raise RuntimeError("no gateway has counted a start")
    lower, below = 0.0, 0.0
    for bound in sorted(counts):
        if counts[bound] >= share * total:
            if math.isinf(bound):
                return lower
            inside = counts[bound] - below
            return lower + (bound - lower) * ((share * total - below) / inside if inside else 1.0)
        lower, below = bound, counts[bound]
    raise AssertionError("the last bucket holds everything")


async def cold_burst(site: Site, runtime: str) -> dict[str, Reading]:
    """Measure `cold_burst_RUNTIME`: how many of 64 cold creates become ready, and each caller's wait."""
    async with site.pool(runtime, size=0, reuse="never") as pool:
        begun = time.perf_counter()
        found = await asyncio.gather(*(_waited(pool) for _ in range(AT_ONCE)), return_exceptions=True)
        whole = time.perf_counter() - begun
    failures = [one for one in found if isinstance(one, BaseException)]
    waits = [one for one in found if not isinstance(one, BaseException)]
    parts = {"all after": as_time(whole)}
    if waits:
        parts["median wait"] = as_time(median([wait for wait, _ in waits]))
        parts["longest wait"] = as_time(max(wait for wait, _ in waits))
        # `timings` of the sandbox's document against the caller's clock.
        parts["told too little by, p99"] = as_time(
            max(0.0, percentile([wait - told for wait, told in waits], 0.99))
        )
    if failures:
        parts["first failure"] = f"{type(failures[0]).__name__}: {failures[0]}"[:160]
    return {f"cold_burst_{runtime}": Reading(value=float(len(waits)), parts=parts)}


async def first_output(pool: Pool) -> tuple[AsyncSandbox, float]:
    """Return a sandbox after its first command, and the seconds until then."""
    begun = time.perf_counter()
    box = await pool.create(wait=500)
    result = await box.exec("echo ready")
    waited = time.perf_counter() - begun
    assert result.stdout == "ready\n", result
    return box, waited


async def _waited(pool: Pool) -> tuple[float, float]:
    """Return the seconds until a command has run, and the seconds in the sandbox's document."""
    box, waited = await first_output(pool)
    info = (await AsyncSandbox.connect(box.id, client=pool.client)).info
    return waited, sum(info.timings.values())
