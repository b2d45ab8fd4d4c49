"""A fork of a sandbox with files against a group of creates from a warm pool, in turn: what copying the files costs."""

from __future__ import annotations

import time

from sandlot import AsyncClient, AsyncPools, AsyncSandbox
from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median

from loadtests.local.group_rows import POOL, full
from loadtests.reading import Reading

ROW = "fork"
COUNT = 4  # 16 forks of 1 GiB need larger sandboxes, whose pool takes minutes to fill between rounds
MIB = 64
ROUNDS = 3


async def fork(client: AsyncClient, *, count: int = COUNT, mib: int = MIB, rounds: int = ROUNDS) -> Reading:
    """Measure the p50 of a fork of `count` with `mib` of files ÷ that of a group of as many, with a full pool before each."""
    pools = AsyncPools(client=client)
    await pools.set(POOL, size=count)
    took: dict[str, list[float]] = {"group": [], "fork": []}
    async with await AsyncSandbox.create(image="host", client=client) as box:
        made = await box.exec(f"head -c {mib << 20} /dev/urandom > /srv/files", timeout=600)
        assert made.ok, made
        for number in range(rounds + 1):
            for what, times in took.items():
                await full(pools)
                begun = time.perf_counter()
                if what == "fork":
                    group = await box.fork(count, wait=600)
                else:
                    group = await AsyncSandbox.create_group(count, image="host", client=client)
                seconds = time.perf_counter() - begun
                assert len(group) == count, group
                if number:  # the first round also opens connections
                    times.append(seconds)
                await group.delete()
    await pools.delete(POOL)
    groups, forks = median(took["group"]), median(took["fork"])
    return Reading(
        value=forks / groups,
        parts={
            f"group of {count} p50": as_time(groups),
            f"fork of {count} p50": as_time(forks),
            "files": f"{mib} MiB",
        },
        curves={f"group of {count}": took["group"], f"fork of {count}": took["fork"]},
    )
