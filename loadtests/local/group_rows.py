"""A group of creates from a warm pool against a create of one, in turn: what waits for all costs no more than their work."""

from __future__ import annotations

import asyncio
import time

from sandlot import AsyncClient, AsyncPools, AsyncSandbox
from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median

from loadtests.reading import Reading

ROW = "group_create"
POOL = "groups"
SIZE = 8  # of a group: a local pool of 64 takes minutes to fill on two cores
ROUNDS = 5


async def group_create(client: AsyncClient, *, size: int = SIZE, rounds: int = ROUNDS) -> Reading:
    """Measure the p50 of a group ÷ that of one sandbox, with a full pool before each."""
    pools = AsyncPools(client=client)
    await pools.set(POOL, size=size)
    took: dict[int, list[float]] = {1: [], size: []}
    hits = 0
    for number in range(rounds + 1):
        for count, times in took.items():
            await full(pools)
            begun = time.perf_counter()
            group = await AsyncSandbox.create_group(count, pool=POOL, client=client)
            seconds = time.perf_counter() - begun
            assert len(group) == count, group
            if number:  # the first round also opens connections
                times.append(seconds)
                hits += sum(box.info.pool_hit for box in group)
            await group.delete()
    await pools.delete(POOL)
    one, all_of_them = median(took[1]), median(took[size])
    return Reading(
        value=all_of_them / one,
        parts={
            "one p50": as_time(one),
            f"group of {size} p50": as_time(all_of_them),
            "from the pool": f"{hits} of {rounds * (size + 1)}",
        },
        curves={"one": took[1], f"group of {size}": took[size]},
    )


async def full(pools: AsyncPools, *, timeout: float = 120.0) -> None:
    """Wait until the pool has all its sandboxes ready and starts no more. Raises TimeoutError."""
    async with asyncio.timeout(timeout):
        while True:
            found = next((pool for pool in await pools.list() if pool.name == POOL), None)
            if found is not None and found.ready >= found.size and not found.starting:
                return
            await asyncio.sleep(0.05)
