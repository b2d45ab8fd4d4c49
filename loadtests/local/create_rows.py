"""Create from a warm pool to the first output of the first command."""

from __future__ import annotations

import asyncio
import time

from sandlot import AsyncClient, AsyncPools, AsyncSandbox
from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median, percentile

from loadtests.reading import Reading

POOL = "bench"
SIZE = 4


async def warm_create(client: AsyncClient, *, rounds: int = 40) -> Reading:
    """Measure the p50 in milliseconds, with a full pool before each create."""
    pools = AsyncPools(client=client)
    await pools.set(POOL, size=SIZE)
    creates: list[float] = []
    firsts: list[float] = []
    hits = 0
    for number in range(rounds + 3):
        await full(pools)
        begun = time.perf_counter()
        box = await AsyncSandbox.create(pool=POOL, client=client)
        created = time.perf_counter()
        result = await box.exec("echo ready")
        ended = time.perf_counter()
        assert result.stdout == "ready\n", result
        if number >= 3:  # the first rounds also open connections
            creates.append(created - begun)
            firsts.append(ended - begun)
            hits += box.info.pool_hit
        await box.delete()
    await pools.delete(POOL)
    return Reading(
        value=median(firsts) * 1000,
        parts={
            "create p50": as_time(median(creates)),
            "to first output p90": as_time(percentile(firsts, 0.9)),
            "to first output p99": as_time(percentile(firsts, 0.99)),
            "from the pool": f"{hits} of {rounds}",
        },
        curves={"create, warm": creates, "create to first output": firsts},
    )


async def full(pools: AsyncPools, *, timeout: float = 60.0) -> None:
    """Wait until the pool has all its sandboxes ready and starts no more. Raises TimeoutError."""
    async with asyncio.timeout(timeout):
        while True:
            found = next((pool for pool in await pools.list() if pool.name == POOL), None)
            if found is not None and found.ready >= found.size and not found.starting:
                return
            await asyncio.sleep(0.02)
