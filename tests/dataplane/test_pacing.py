"""The pauses that let requests gather while the gateway queues for its core."""

from __future__ import annotations

import time

import pytest
from sandlot_gateway.data import pacing as pacing_module
from sandlot_gateway.data.pacing import CROWD, LOOK_EVERY, PAUSE, Figures, Pacing, kernel_figures

from tests.waiting import loop_turns

SECOND = 1_000_000_000


class Clock:
    """In place of the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(pacing_module, "time", made)
    return made


async def paused(pacing: Pacing, clock: Clock, *, in_flight: int) -> bool:
    """Whether the turn of the loop that took a request was followed by a pause."""
    clock.slept.clear()
    pacing.request(in_flight=in_flight)
    await loop_turns()
    assert clock.slept in ([], [PAUSE])
    return bool(clock.slept)


async def looked(clock: Clock, figures: list[Figures]) -> Pacing:
    """One that has read all these figures of the kernel, one after the other."""
    times = len(figures)
    pacing = Pacing(figures=lambda: figures.pop(0))
    for _ in range(times - 1):
        pacing.request(in_flight=CROWD)
        await loop_turns()
        clock.now += LOOK_EVERY * 1.2
    return pacing


def after(seconds: int, *, queued: int, busy: int) -> Figures:
    """So many seconds in which the thread ran, queued for so many more, and the machine was busy for `busy` %."""
    return Figures(
        ran=seconds * SECOND, queued=queued * SECOND, busy=seconds * busy, idle=seconds * (100 - busy)
    )


async def test_a_core_of_its_own_means_no_pause(clock: Clock) -> None:
    pacing = await looked(clock, [after(0, queued=0, busy=0), after(1, queued=0, busy=100)])
    assert not await paused(pacing, clock, in_flight=CROWD)
    assert not await paused(pacing, clock, in_flight=10 * CROWD)


async def test_a_queue_for_the_core_means_one_pause_for_each_batch(clock: Clock) -> None:
    pacing = await looked(clock, [after(0, queued=0, busy=0), after(1, queued=1, busy=100)])
    pacing.request(in_flight=CROWD)
    assert await paused(pacing, clock, in_flight=CROWD)
    assert await paused(pacing, clock, in_flight=CROWD)
    assert not await paused(pacing, clock, in_flight=CROWD - 1)


@pytest.mark.parametrize(("busy", "goes_on"), [(100, True), (50, False)])
async def test_it_goes_on_while_the_machine_is_busy(clock: Clock, busy: int, goes_on: bool) -> None:
    # Its own pauses have ended the queue: from the first second's figures on nothing queues.
    later = [Figures(n * SECOND, SECOND, n * busy, n * (100 - busy)) for n in range(2, 9)]
    pacing = await looked(clock, [after(0, queued=0, busy=0), after(1, queued=1, busy=busy), *later])
    assert await paused(pacing, clock, in_flight=CROWD) == goes_on


async def test_a_long_silence_says_nothing_about_now(clock: Clock) -> None:
    pacing = await looked(clock, [after(1, queued=1, busy=100)])
    assert not await paused(pacing, clock, in_flight=CROWD)


def test_the_kernel_counts_all() -> None:
    before = kernel_figures()
    ends = time.thread_time() + 0.05  # longer than the 10 ms that /proc/stat counts in
    while time.thread_time() < ends:
        pass
    after = kernel_figures()
    assert after.ran - before.ran >= 0.05 * SECOND
    assert after.queued >= before.queued
    assert after.busy > before.busy
    assert after.idle >= before.idle > 0
