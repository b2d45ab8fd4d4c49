"""Carries out the faults of a phase at their moments, and notes when what was broken is whole again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec

from loadtests.load.places import Place, PlaceFailed
from loadtests.load.profile import Fault

WHOLE_SECONDS = 180.0  # for a part to be whole again, on a machine that does other things too


class Broken(msgspec.Struct, kw_only=True):
    """One fault as it was: when it happened and when all was whole again, in seconds since the run began."""

    kill: str
    at: float
    whole: float

    @property
    def away(self) -> float:
        return self.whole - self.at


async def carry_out(faults: Sequence[Fault], *, place: Place, start: float, zero: float) -> list[Broken]:
    """One after the other; each waits until the last is healed. `start` is the phase's. Raises PlaceFailed."""
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
