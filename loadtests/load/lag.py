"""Measures the generator's own delays: event loop lag, late sends, and CPU."""

from __future__ import annotations

import asyncio
import time

TICK = 0.02  # seconds between two measurements
LATE = 0.02  # seconds: above this p99, the generator's own delay distorts the results
FULL = 0.9  # share of a core: above this, the generator is the bottleneck


class LagWatch:
    """Runs a task that sleeps and records how late it wakes up."""

    def __init__(self) -> None:
        self.lags: list[float] = []  # seconds, of the loop
        self.sends: list[float] = []  # seconds by which tasks of an open loop started late
        self._task: asyncio.Task[None] | None = None
        self._cpu = self._wall = 0.0

    async def __aenter__(self) -> LagWatch:
        self._cpu, self._wall = time.process_time(), time.monotonic()
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._cpu, self._wall = time.process_time() - self._cpu, time.monotonic() - self._wall

    @property
    def cpu(self) -> float:
        """CPU seconds of this process, after the block."""
        return self._cpu

    @property
    def wall(self) -> float:
        return self._wall

    async def _watch(self) -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(TICK)
            self.lags.append(round(max(0.0, time.monotonic() - begun - TICK), 5))
