"""How late the generator itself was: its event loop's lag, the lateness of its sends, and the CPU it used."""

from __future__ import annotations

import asyncio
import time

TICK = 0.02  # seconds between two looks
LATE = 0.02  # a generator whose 99th percentile is over this has measured itself too
FULL = 0.9  # of a core: more than that and it has become the limit


class LagWatch:
    """`async with` a task that sleeps and sees how much too late it wakes up."""

    def __init__(self) -> None:
        self.lags: list[float] = []  # seconds, of the loop
        self.sends: list[float] = []  # seconds that tasks of an open loop were begun too late
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
        """Seconds of this process, after the block."""
        return self._cpu

    @property
    def wall(self) -> float:
        return self._wall

    async def _watch(self) -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(TICK)
            self.lags.append(round(max(0.0, time.monotonic() - begun - TICK), 5))
