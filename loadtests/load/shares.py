"""Runs a phase in which two runs share turns under overload: who was served when, and what each was told of its wait."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sandlot import AsyncRun, AsyncSandbox

from loadtests.load.rl_kinds import FairShare
from loadtests.load.task import COLD_MEMORY, WAIT, Calls, Over

HEAVY, LIGHT = "heavy", "light"
EVERY = 0.2  # seconds between looks at the queue
CLOSE = 2.0  # an estimate is right between half of the wait and twice as much


@dataclass(frozen=True, slots=True)
class Turn:
    """A create of a run, in seconds of one clock: when it was asked for, got its turn, and had its sandbox.

    Without its turn it was given up at `turn`, and has no `served`.
    """

    run: str
    asked: float
    turn: float
    served: float | None
    sandbox: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """What a create that waits was first told: its place, and its wait in seconds or None."""

    at: float
    place: int
    estimate: float | None


async def run(calls: Calls, load: FairShare) -> dict[str, float]:
    """Run the phase; return the figures of `figures`."""
    turns: list[Turn] = []
    told: dict[str, Told] = {}
    label, client = calls.actor.setup.label, calls.actor.client
    weights = {HEAVY: load.weight, LIGHT: 1}
    enough = asyncio.Event()

    async def caller(name: str) -> None:
        while True:
            asked = time.monotonic()
            try:
                box = await calls.call(name, lambda: _create(calls, run=f"{label}-{name}"))
            except asyncio.CancelledError:
                turns.append(Turn(name, asked, time.monotonic(), None))
                raise
            except Over:
                continue
            timings = box.info.timings
            turn = asked + timings.get("queued", 0.0)
            turns.append(Turn(name, asked, turn, turn + timings.get("start", 0.0), box.id))
            if sum(one.served is not None for one in turns) >= load.turns:
                enough.set()
            with contextlib.suppress(Over):
                await calls.call("delete", box.delete, sandbox=box.id)

    async with contextlib.AsyncExitStack() as runs:
        for name, weight in weights.items():
            # Of its own creates only: the process has several runs.
            await runs.enter_async_context(AsyncRun(f"{label}-{name}", weight=weight, client=client))
        callers = [asyncio.create_task(caller(name)) for name in weights for _ in range(load.callers)]
        watching = asyncio.create_task(_watch(label, told=told, calls=calls))
        try:
            ended = asyncio.create_task(enough.wait())
            await asyncio.wait((ended, *callers, watching), return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
        finally:
            for task in (*callers, watching):
                task.cancel()
            endings = await asyncio.gather(*callers, watching, return_exceptions=True)
        for error in endings:
            if not isinstance(error, asyncio.CancelledError) and isinstance(error, BaseException):
                raise error
    return figures(turns, told, weight=load.weight)


async def _create(calls: Calls, *, run: str) -> AsyncSandbox:
    """Create a sandbox of a size that no warm one has, so that it waits for a start."""
    setup = calls.actor.setup
    return await AsyncSandbox.create(
        setup.image,
        cpu=setup.cpu,
        memory=COLD_MEMORY,
        labels=(setup.label,),
        run_id=run,
        wait=WAIT,
        client=calls.actor.client,
    )


async def _watch(label: str, *, told: dict[str, Told], calls: Calls) -> None:
    """Note what each create that waits is told first with an estimate, else first of all."""
    while True:
        at = time.monotonic()
        for info in await AsyncSandbox.list(labels=(label,), client=calls.actor.client):
            known = told.get(info.id)
            if info.queue_position is not None and (known is None or known.estimate is None):
                told[info.id] = Told(at, info.queue_position, info.estimated_wait)
        await asyncio.sleep(EVERY)


def figures(turns: Sequence[Turn], told: dict[str, Told], *, weight: int) -> dict[str, float]:
    """Return the turns of each run that count, what they are ÷ what is due, and how good estimates were.

    A turn counts if a create of the other run waited at that moment. `unfair` is by how many turns a run misses what is
    due, beyond 5 % of it and its square root: so few turns may differ by those that begin and end the phase. `placed`
    creates were told a place, `estimated` ones a wait, and `within` is the share of these that was half to twice of it.
    """
    found: dict[str, float] = {}
    counted = {name: sum(_counts(one, turns) for one in turns if one.run == name) for name in (HEAVY, LIGHT)}
    both = sum(counted.values())
    unfair = 0
    for name, parts in ((HEAVY, weight), (LIGHT, 1)):
        due = both * parts / (weight + 1)
        found[f"turns_{name}"] = counted[name]
        found[f"share_{name}"] = round(counted[name] / due, 4) if due else 0.0
        unfair = max(unfair, math.ceil(abs(counted[name] - due) - 0.05 * due - math.sqrt(due)))
    served = sum(one.served is not None for one in turns)
    found |= {"turns": served, "counted": round(both / served, 4) if served else 0.0, "unfair": unfair}
    for name in (HEAVY, LIGHT):
        heard = [(one, told[one.sandbox]) for one in turns if one.run == name and one.sandbox in told]
        ratios = [
            (one.served - what.at) / what.estimate
            for one, what in heard
            if one.served is not None and what.estimate and one.served > what.at
        ]
        found[f"placed_{name}"] = len(heard)
        found[f"estimated_{name}"] = len(ratios)
        within = sum(1 / CLOSE <= ratio <= CLOSE for ratio in ratios)
        found[f"within_{name}"] = round(within / len(ratios), 4) if ratios else 0.0
    return found


def _counts(one: Turn, turns: Sequence[Turn]) -> bool:
    """Whether a create of the other run waited when this one got its turn."""
    return one.served is not None and any(
        other.run != one.run and other.asked < one.turn < other.turn for other in turns
    )
