"""Injects the faults of a phase at their times and records when the part has recovered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec

from loadtests.load.places import Place, PlaceFailed
from loadtests.load.profile import Fault

WHOLE_SECONDS = 180.0  # for a part to recover, on a loaded machine


class Broken(msgspec.Struct, kw_only=True):
    """An injected fault: its time and the time of recovery, in seconds since the run began."""

    kill: str
    at: float
    whole: float

    @property
    def away(self) -> float:
        return self.whole - self.at


async def carry_out(faults: Sequence[Fault], *, place: Place, start: float, zero: float) -> list[Broken]:
    """Inject the faults one by one, each after the last has recovered; `start` is the phase's. Raises PlaceFailed."""
    found: list[Broken] = []
    for fault in sorted(faults, key=lambda each: each.at):
        await asyncio.sleep(start + fault.at - time.monotonic())
        await place.kill(fault.kill)
        at = time.monotonic()
        try:
            async with asyncio.timeout(WHOLE_SECONDS):
                await place.whole(fault.kill)
        except TimeoutError as error:
            raise PlaceFailed(f"{fault.kill} was killed and not whole in {WHOLE_SECONDS:g} s") from error
        found.append(Broken(kill=fault.kill, at=round(at - zero, 3), whole=round(time.monotonic() - zero, 3)))
    return found
