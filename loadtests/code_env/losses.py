"""Kills every n-th sandbox of a phase while its rollout waits for the model, as a node that fails would."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sandlot import AsyncSandbox
from sandlot.models import SandboxInfo

from loadtests.code_env.model import Model
from loadtests.load.places import Place

SOON = 0.2  # seconds after a completion, in which its tests begin
LOOKS = 40  # in the time within which a sandbox is killed


@dataclass(frozen=True, slots=True)
class Loss:
    """A sandbox whose sidecar was killed between these two times of the monotonic clock."""

    sandbox: str
    begun: float
    ended: float


@asynccontextmanager
async def every(
    nth: int | None, *, within: float, labels: tuple[str, ...], run: str | None, place: Place, seed: int
) -> AsyncIterator[list[Loss]]:
    """Kill every `nth` sandbox with these labels, of this run, at a random time in the `within` seconds after its create.

    Yields the list of what was killed, which grows. Raises PlaceFailed where one cannot be killed.
    """
    found: list[Loss] = []
    if nth is None:
        yield found
        return
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(
            _watch(
                nth,
                within=within,
                labels=labels,
                run=run,
                place=place,
                moments=random.Random(seed),
                group=group,
                found=found,
            )
        )
        try:
            yield found
        finally:
            watching.cancel()


@asynccontextmanager
async def at_answers(
    nth: int | None, *, labels: tuple[str, ...], model: Model, place: Place, seed: int
) -> AsyncIterator[list[Loss]]:
    """Kill one of the sandboxes with these labels when every `nth` rollout has its completion, and so begins its tests.

    For sandboxes that many rollouts share. Yields as `every` does.
    """
    found: list[Loss] = []
    if nth is None:
        yield found
        return
    chosen = random.Random(seed)

    async def one() -> None:
        boxes = await AsyncSandbox.list(labels=labels, client=place.client)
        running = [box for box in boxes if box.status == "RUNNING"]
        if running:
            await _kill(chosen.choice(running), after=chosen.uniform(0, SOON), place=place, found=found)

    async with asyncio.TaskGroup() as group:

        def answered(number: int) -> None:
            if number % nth == nth - 1:
                group.create_task(one())

        before, model.answered = model.answered, answered
        try:
            yield found
        finally:
            model.answered = before


async def _watch(
    nth: int,
    *,
    within: float,
    labels: tuple[str, ...],
    run: str | None,
    place: Place,
    moments: random.Random,
    group: asyncio.TaskGroup,
    found: list[Loss],
) -> None:
    seen: set[str] = set()
    while True:
        boxes = await AsyncSandbox.list(labels=labels, run=run, client=place.client)
        for box in sorted(boxes, key=lambda each: each.created_at):
            if box.id in seen:
                continue
            seen.add(box.id)
            if len(seen) % nth == 0:
                group.create_task(_kill(box, after=moments.uniform(0, within), place=place, found=found))
        await asyncio.sleep(within / LOOKS)


async def _kill(box: SandboxInfo, *, after: float, place: Place, found: list[Loss]) -> None:
    await asyncio.sleep(after)
    begun = time.monotonic()
    if await place.lose(box):
        found.append(Loss(box.id, begun, time.monotonic()))
