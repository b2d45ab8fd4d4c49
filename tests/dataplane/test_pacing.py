"""The pauses that let requests gather while the gateway queues for its core."""

from __future__ import annotations

import asyncio
import time

from sandlot_gateway.data.pacing import CROWD, LOOK_EVERY, PAUSE, Pacing, schedstat

SECOND = 1_000_000_000


async def paused(pacing: Pacing, *, in_flight: int) -> bool:
    """Whether the turn of the loop that took a request was followed by a pause."""
    pacing.request(in_flight=in_flight)
    before = time.monotonic()
    await asyncio.sleep(0)
    return time.monotonic() - before >= PAUSE


async def looked_twice(figures: list[tuple[int, int]]) -> Pacing:
    """One that has compared the kernel's figures once."""
    pacing = Pacing(figures=lambda: figures.pop(0) if len(figures) > 1 else figures[0])
    pacing.request(in_flight=CROWD)
    await asyncio.sleep(LOOK_EVERY * 1.2)
    return pacing


async def test_a_core_of_its_own_means_no_pause() -> None:
    pacing = await looked_twice([(0, 0), (SECOND, SECOND // 100)])
    assert not await paused(pacing, in_flight=CROWD)
    assert not await paused(pacing, in_flight=10 * CROWD)


async def test_a_queue_for_the_core_means_one_pause_for_each_batch() -> None:
    pacing = await looked_twice([(0, 0), (SECOND, SECOND)])
    pacing.request(in_flight=CROWD)
    assert await paused(pacing, in_flight=CROWD)
    assert await paused(pacing, in_flight=CROWD)
    assert not await paused(pacing, in_flight=CROWD - 1)


async def test_a_long_silence_says_nothing_about_now() -> None:
    pacing = Pacing(figures=lambda: (SECOND, SECOND))
    assert not await paused(pacing, in_flight=CROWD)


def test_the_kernel_counts_both() -> None:
    ran, queued = schedstat()
    assert ran > 0
    assert queued >= 0
