"""Runs many rollouts concurrently, as many as the machine allows, and yields each outcome as it comes."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from sandlot_grade.rollout import Grader
from sandlot_grade.work import Outcome, Rollout, Stopped

SANDBOX_OVERHEAD = 24 << 20  # bytes of a sidecar and its kernel objects, a generous estimate
LOST_IN_A_ROW = 50
CROWDED = 8.0  # wall seconds per CPU second; above this, more concurrency only slows all rollouts down


def fitting(*, memory: int, cores: int | None = None, available: int | None = None) -> int:
    """Return how many rollouts of `memory` bytes to run at once here: twelve a core, fewer if memory is short.

    Many more than one a core, since endless loops run until their timeout: the more run concurrently, the sooner
    all of them are done, and the others still get their share of the cores.
    """
    cores = cores or usable_cores()
    available = available_memory() if available is None else available
    by_memory = int(available * 0.7) // (memory + SANDBOX_OVERHEAD)
    return max(1, min(12 * cores, by_memory, 256))


def usable_cores() -> int:
    """Return the number of this machine's cores that this process may use."""
    return len(os.sched_getaffinity(0))


def available_memory() -> int:
    """Return the bytes that new processes can use without swapping; 1 GiB if the kernel does not report them."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 1 << 30
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 1 << 30


class Pace:
    """The concurrency of a run: `most`, or less while contention for the cores makes timeouts unreliable.

    On a shared machine, a program that needs 0.1 s of CPU may get them only after its timeout, which would then be
    the machine's fault, not the code's. So the pace follows how long programs that ended by themselves waited for
    the cores; timeouts do not count, since endless loops always compete.
    """

    def __init__(self, *, most: int, least: int | None = None) -> None:
        self.most = most
        self.least = min(most, least or 2 * usable_cores())
        self._now = float(max(self.least, most // 2))

    @property
    def now(self) -> int:
        return int(self._now)

    def saw(self, outcome: Outcome) -> None:
        """Adjust the concurrency by half a rollout for each outcome: about 50 % more or less after a round."""
        ran = outcome.verdict not in (None, "timeout") and outcome.cpu > 0
        crowded = ran and outcome.timings.exec > CROWDED * max(outcome.cpu, 0.01)
        self._now = min(max(self._now + (-0.5 if crowded else 0.5), self.least), self.most)


async def run_all(rollouts: Sequence[Rollout], *, grader: Grader, pace: Pace) -> AsyncIterator[Outcome]:
    """Yield outcomes in the order in which they end.

    Raises Stopped if the infrastructure lost LOST_IN_A_ROW rollouts without a success in between, and errors that
    make every rollout impossible (BadRequest, AuthError, GradeError). Leaving the iteration early cancels the rest.
    """
    waiting = deque(rollouts)
    running: set[asyncio.Task[Outcome]] = set()
    lost_in_a_row = 0
    try:
        while waiting or running:
            while waiting and len(running) < pace.now:
                running.add(asyncio.create_task(grader.grade(waiting.popleft())))
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                running.remove(task)
                outcome = task.result()
                pace.saw(outcome)
                lost_in_a_row = lost_in_a_row + 1 if outcome.result == "lost" else 0
                if lost_in_a_row >= LOST_IN_A_ROW:
                    raise Stopped(f"{LOST_IN_A_ROW} rollouts in a row were lost; the last: {outcome.message}")
                yield outcome
    finally:
        # Await those that ended meanwhile, too: asyncio logs the traceback of each exception that is never retrieved.
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
