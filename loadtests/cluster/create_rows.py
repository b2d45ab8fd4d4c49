"""Creates from a warm pool until the first output: alone, back to back while the pool refills, and 20 at once."""

from __future__ import annotations

import asyncio
import time

from sandlot import AsyncPools, AsyncSandbox
from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median, percentile
from sandlot_kube.objects import Pod

from loadtests.cluster.site import Pool, Site
from loadtests.reading import Reading

AT_ONCE = 20
ROUNDS = 2
BURSTS = 3
PRIMED = 4  # left in the pool for the time in which the refill's pods start
REST = 1.0  # seconds that the node still works after a start or an end
PREPARED = 8.0  # seconds until 20 Python loops have started, also under gVisor
# The floor of the first command: one spawn in each of the same pods, all at one moment of the nodes' clocks.
_SPAWN_AT = """
import subprocess, sys, time
command = ["sh", "-c", "echo ready"]
subprocess.run(command, capture_output=True, check=True)
at = float(sys.argv[1])
assert time.time() < at, "the machine is too slow to begin at one moment"
time.sleep(at - time.time())
subprocess.run(command, capture_output=True, check=True)
print(time.time() - at)
"""


async def creates(site: Site, runtime: str, *, rounds: int = 20) -> dict[str, Reading]:
    """Measure `create_RUNTIME`, `back_to_back_RUNTIME`, `burst_RUNTIME` and the last over its floor: one pool of 20."""
    async with site.pool(runtime, size=AT_ONCE, reuse="never") as pool:
        warm_up = await _first_output(pool)
        await _settle(pool, held=1)
        settled = []
        for _ in range(rounds):
            settled.append(await _first_output(pool))
            await _settle(pool, held=1 + len(settled))
        await _end([warm_up, *settled])
        await _settle(pool)
        bursts = [await _burst(pool) for _ in range(BURSTS)]
        rush: list[_Taken] = []
        among_starts: list[_Taken] = []
        for _ in range(ROUNDS):
            found, late = await _back_to_back(pool)
            rush += found
            among_starts += late
            await _settle(pool)
    firsts = [taken.first for taken in settled]
    alone = Reading(
        value=median(firsts) * 1000,
        parts={
            "create p50": as_time(median([taken.created for taken in settled])),
            "claim p50": as_time(median([taken.claim for taken in settled])),
            "p90": as_time(percentile(firsts, 0.9)),
            "from the pool": f"{sum(taken.hit for taken in settled)} of {rounds}",
        },
        curves={f"create to first output, {runtime}": firsts},
    )
    rushed = [taken.first for taken in rush]
    refilling = Reading(
        value=median(rushed) / median(firsts),
        parts={
            "p50": as_time(median(rushed)),
            "p90": as_time(percentile(rushed, 0.9)),
            "last": as_time(max(rushed)),
            "settled p50": as_time(median(firsts)),
            "while pods are being started, p50": as_time(median([taken.first for taken in among_starts])),
            "from the pool": f"{sum(taken.hit for taken in rush)} of {len(rush)}",
        },
        curves={f"create to first output, refilling, {runtime}": rushed},
    )
    last = [max(taken.first for taken in burst.taken) for burst in bursts]
    made = [max(taken.created for taken in burst.taken) for burst in bursts]
    every = [taken for burst in bursts for taken in burst.taken]
    together = Reading(
        value=median(last) * 1000,
        parts={
            "rounds": ", ".join(as_time(each) for each in last),
            "last create": as_time(median(made)),
            "spawns at once in the same pods, last": as_time(median([burst.floor for burst in bursts])),
            "the client's CPU": as_time(median([burst.client for burst in bursts])),
            "median sandbox": as_time(median([taken.first for taken in every])),
            "from the pool": f"{sum(taken.hit for taken in every)} of {len(every)}",
        },
        curves={f"create to first output, 20 at once, {runtime}": [taken.first for taken in every]},
    )
    floors = [burst.floor for burst in bursts]
    over = [mine / floor for mine, floor in zip(last, floors, strict=True)]
    beside = Reading(
        value=median(over),
        parts={
            "rounds": ", ".join(f"{each:.1f}" for each in over),
            "last output": as_time(median(last)),
            "last spawn": as_time(median(floors)),
        },
    )
    return {
        f"create_{runtime}": alone,
        f"back_to_back_{runtime}": refilling,
        f"burst_{runtime}": together,
        f"burst_over_spawns_{runtime}": beside,
    }


class _Taken:
    """A sandbox and its caller's waits, in seconds."""

    def __init__(self, box: AsyncSandbox, *, created: float, first: float) -> None:
        self.box = box
        self.created = created
        self.first = first
        self.hit = box.info.pool_hit
        self.claim = box.info.timings.get("claim", 0.0)


async def _first_output(pool: Pool) -> _Taken:
    begun = time.perf_counter()
    box = await pool.create()
    created = time.perf_counter() - begun
    result = await box.exec("echo ready")
    first = time.perf_counter() - begun
    assert result.stdout == "ready\n", result
    return _Taken(box, created=created, first=first)


async def _back_to_back(pool: Pool) -> tuple[list[_Taken], list[_Taken]]:
    """Create one after the other: as many as the pool has ready, then while its pods start."""
    taken = [await _first_output(pool) for _ in range(AT_ONCE - PRIMED)]
    await _refilling(pool)
    among_starts = [await _first_output(pool) for _ in range(PRIMED)]
    await _end([*taken, *among_starts])
    return taken, among_starts


async def _refilling(pool: Pool) -> None:
    """Wait until a node starts the first pods of the refill."""
    async with asyncio.timeout(30):
        while True:
            if any(pod.status.phase == "Pending" and pod.spec.node_name for pod in await pool.pods()):
                return
            await asyncio.sleep(0.02)


class _Burst:
    """20 creates at once; `floor` is the last of 20 spawns in the same pods, `client` this process's CPU seconds."""

    def __init__(self, taken: list[_Taken], *, floor: float, client: float) -> None:
        self.taken = taken
        self.floor = floor
        self.client = client


async def _burst(pool: Pool) -> _Burst:
    # A trainer's client has open connections, so opening them must not count.
    await asyncio.gather(*(AsyncPools(client=pool.client).list() for _ in range(AT_ONCE)))
    spent = time.process_time()
    begun = time.perf_counter()

    async def one() -> _Taken:
        taken = await _first_output(pool)
        taken.first = time.perf_counter() - begun
        return taken

    found = await asyncio.gather(*(one() for _ in range(AT_ONCE)))
    spent = time.process_time() - spent
    await _settle(pool, held=AT_ONCE)
    floor = await _spawns_at_once(found)
    await _end(found)
    await _settle(pool)
    return _Burst(found, floor=floor, client=spent)


async def _spawns_at_once(taken: list[_Taken]) -> float:
    """Spawn in all pods at once and return the seconds until the last has ended."""
    words = ["python3", "-S", "-c", _SPAWN_AT, str(time.time() + PREPARED)]
    told = await asyncio.gather(*(each.box.exec(words, timeout=60) for each in taken))
    for result in told:
        assert result.exit_code == 0, result
    return max(float(result.stdout) for result in told)


async def _settle(pool: Pool, *, held: int = 0) -> None:
    """Wait until the pool is full and no pod starts or ends; `held` pods belong to live sandboxes."""
    async with asyncio.timeout(300):
        while True:
            await pool.full(AT_ONCE, timeout=300)
            pods = await pool.pods()
            # Pods of just ended sandboxes still run, and their nodes would remove them during the next measurement.
            if len(pods) == AT_ONCE + held and all(_stays(pod) for pod in pods):
                break
            await asyncio.sleep(0.2)
    await asyncio.sleep(REST)


def _stays(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.status.phase == "Running"


async def _end(taken: list[_Taken]) -> None:
    await asyncio.gather(*(each.box.delete() for each in taken))
