"""Baselines of the same command without Sandlot, in the same run: before the first phase and after the last."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from sandlot import AsyncSandbox
from sandlot.errors import SandlotError

from loadtests.floors import IN_SANDBOX, spawn_once, spawn_rate
from loadtests.load.messages import Done
from loadtests.load.profile import Baseline

BATCH = 16  # spawns in a sandbox by one op


@dataclass
class Taken:
    """One baseline: seconds of each call of one caller, calls per second of many, and why it is missing."""

    times: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    failures: int = 0
    open: int = 0  # calls of many that had not ended when no more might begin
    lagged: list[str] = field(default_factory=list[str])  # why the callers' own delays distort the rates
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Called:
    """A call of one of many callers: when it began and ended on the monotonic clock, and how it failed, or ""."""

    caller: int
    began: float
    ended: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Calls:
    """What many callers made, and what it cost each of their processes."""

    made: list[Called]
    by: list[Done]


Baselines = dict[str, Taken]
MakeSandbox = Callable[[], Awaitable[AsyncSandbox]]
# Calls from one moment of the monotonic clock on, for so many seconds.
Callers = Callable[[float, float], Awaitable[Calls]]


async def on_the_spot(taken: Baselines, plan: Baseline) -> None:
    """Measure `spawn`: `subprocess.run` beside the load generator, by one caller and by a loop on each core."""
    found = taken.setdefault("spawn", Taken())
    found.times += await asyncio.to_thread(_spawns, plan.command, plan.seconds)
    found.rates.append(await asyncio.to_thread(spawn_rate, seconds=plan.seconds, command=plan.command))


def _spawns(command: Sequence[str], seconds: float) -> list[float]:
    spawn_once(command)  # fills the file cache
    end = time.monotonic() + seconds
    times = [spawn_once(command)]
    while time.monotonic() < end:
        times.append(spawn_once(command))
    return times


async def in_a_sandbox(taken: Baselines, plan: Baseline, make: MakeSandbox) -> None:
    """Measure `spawn_inside`: the same in a sandbox, by an op that spawns: the runtime's share of a command."""
    found = taken.setdefault("spawn_inside", Taken())
    try:
        async with await make() as box:
            end = time.monotonic() + plan.seconds
            while True:
                script = ["python3", "-S", "-c", IN_SANDBOX, str(BATCH), *plan.command]
                result = await box.exec(script, timeout=120)
                if not result.ok:
                    found.missing = (result.stderr or result.stdout).strip()[-200:] or result.verdict
                    return
                found.times += json.loads(result.stdout)
                if time.monotonic() >= end:
                    return
    except SandlotError as error:
        found.missing = str(error)[:200]
