"""Creates of many images in the slots of one pool: one after the other, more images than slots, and 64 at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median, percentile

from loadtests.cluster import agents
from loadtests.cluster.site import Pool, Site
from loadtests.load import dataset
from loadtests.reading import Reading
from tests.cluster.cluster import push_images

SLOTS = 12
ROWS = ("create_other_image", "images_pods_created", "images_burst")
_COMMAND = "cat /task/name"


@dataclass(frozen=True, slots=True)
class Size:
    """How many sandboxes each row has."""

    in_turn: int = 20  # one after the other, of as many images
    images: int = 200  # of SLOTS callers, an image each
    burst: int = 64  # at once, an image each


async def slots(site: Site, runtime: str, *, size: Size | None = None) -> dict[str, Reading]:
    """Measure `create_other_image_RUNTIME`, `images_pods_created_RUNTIME` and `images_burst_RUNTIME`.

    All images are prepared on all nodes before. A rollout is a create, a command that names its image, and a delete.
    """
    size = size or Size()
    layout = await asyncio.to_thread(dataset.layout, size.in_turn + size.images + size.burst)
    images = await asyncio.to_thread(push_images, layout)
    await agents.prepare(site, images)
    in_turn, many, burst = _split(images, size)
    async with site.pool(runtime, size=SLOTS, slots=True, reuse="tenant") as pool:
        others = [await _settled_rollout(pool, number, images) for number in in_turn]
        took, created = await _over_slots(pool, many, images)
        last, burst_created = await _at_once(pool, burst, images)
    own = {"image": images[0]}
    async with site.pool(runtime, size=SLOTS, template=own, reuse="tenant") as pool:
        same = [await _settled_rollout(pool, 0, images) for _ in in_turn]
    firsts, floor = [each.first for each in others], [each.first for each in same]
    # What one caller needs for the burst's rollouts, one after the other and with each slot reset before.
    sequential = median([each.whole for each in others]) * size.burst
    other_image = Reading(
        value=median(firsts) / median(floor),
        parts={
            "another image, p50": as_time(median(firsts)),
            "p90": as_time(percentile(firsts, 0.9)),
            "pods of the image, p50": as_time(median(floor)),
            "from the pool": f"{sum(each.hit for each in others)} and {sum(each.hit for each in same)} of {size.in_turn}",
        },
        curves={f"create of another image to first output, {runtime}": firsts},
    )
    pods_created = Reading(
        value=float(created),
        parts={"images": str(size.images), "slots": str(SLOTS), "all answered after": as_time(took)},
    )
    at_once = Reading(
        value=last / sequential,
        parts={
            "last first output": as_time(last),
            "one after the other": as_time(sequential),
            "pods created": str(burst_created),
        },
    )
    found = (other_image, pods_created, at_once)
    return {f"{row}_{runtime}": reading for row, reading in zip(ROWS, found, strict=True)}


def _split(images: Sequence[str], size: Size) -> tuple[range, range, range]:
    """Return the numbers of each row's images: no slot has had one before."""
    first, second = size.in_turn, size.in_turn + size.images
    return range(first), range(first, second), range(second, len(images))


@dataclass(frozen=True, slots=True)
class _Rollout:
    """Seconds from the create until its first output and until its deletion was answered."""

    first: float
    whole: float
    hit: bool


async def _settled_rollout(pool: Pool, number: int, images: Sequence[str]) -> _Rollout:
    await pool.full(SLOTS)
    return await _rollout(pool, number, images)


async def _rollout(pool: Pool, number: int, images: Sequence[str]) -> _Rollout:
    begun = time.perf_counter()
    box = await pool.create(images[number] if pool.image is None else None, wait=300)
    result = await box.exec(_COMMAND)
    first = time.perf_counter() - begun
    assert result.stdout == f"{dataset.tag(number)}\n", result
    await box.delete()
    return _Rollout(first, time.perf_counter() - begun, box.info.pool_hit)


async def _over_slots(pool: Pool, numbers: Sequence[int], images: Sequence[str]) -> tuple[float, int]:
    """Return the seconds that SLOTS callers need for all rollouts, and the pods created meanwhile."""
    await pool.full(SLOTS)
    before, begun = await agents.supplied(pool.site), time.perf_counter()
    left = iter(numbers)

    async def caller() -> None:
        for number in left:
            await _rollout(pool, number, images)

    async with asyncio.TaskGroup() as group:
        for _ in range(SLOTS):
            group.create_task(caller())
    took = time.perf_counter() - begun
    return took, (await agents.supplied(pool.site))["pods"] - before["pods"]


async def _at_once(pool: Pool, numbers: Sequence[int], images: Sequence[str]) -> tuple[float, int]:
    """Return the seconds until the last of these creates, all made at once, has its first output, and the new pods."""
    await pool.full(SLOTS)
    before = await agents.supplied(pool.site)

    async def one(number: int) -> float:
        return (await _rollout(pool, number, images)).first

    last = max(await asyncio.gather(*(one(number) for number in numbers)))
    return last, (await agents.supplied(pool.site))["pods"] - before["pods"]
