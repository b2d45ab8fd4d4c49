"""Spawns the same command at intervals during the load, to show the machine's own latency at that time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from loadtests.floors import spawn_once
from loadtests.load.events import BESIDE, Event, Journal

EVERY = 0.1  # seconds between spawns: about 2 % of a core


class Beside:
    """Records an event for each spawn; baselines before and after a phase miss other load during it."""

    def __init__(self, *, command: Sequence[str], journal: Journal, zero: float) -> None:
        self._command = command
        self._journal = journal
        self._zero = zero

    @asynccontextmanager
    async def during(self, phase: str) -> AsyncIterator[None]:
        task = asyncio.create_task(self._again_and_again(phase))
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            self._journal.flush()

    async def _again_and_again(self, phase: str) -> None:
        number = 0
        while True:
            # Shielded: a thread cannot be cancelled, and its child must not outlive the phase.
            spawn = asyncio.create_task(asyncio.to_thread(spawn_once, self._command))
            try:
                took = await asyncio.shield(spawn)
            except asyncio.CancelledError:
                with contextlib.suppress(BlockingIOError):
                    await spawn
                raise
            except BlockingIOError:  # the load has every process id of the machine: it goes on
                await asyncio.sleep(EVERY)
                continue
            ended = time.monotonic() - self._zero
            began = round(ended - took, 6)
            self._journal.add(
                Event(
                    phase=phase,
                    process=-1,
                    number=number,
                    kind=BESIDE,
                    intended=began,
                    began=began,
                    ended=round(ended, 6),
                )
            )
            number += 1
            await asyncio.sleep(EVERY)
