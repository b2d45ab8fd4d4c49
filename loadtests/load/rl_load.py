"""Runs the phases of rl_kinds.py in a generator process: groups, and forks beside as many creates."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Sequence
from typing import Any

from sandlot import AsyncPools, AsyncSandbox
from sandlot.models import ExecResult

from loadtests.load import shares
from loadtests.load.profile import Phase
from loadtests.load.rl_kinds import Forks, Groups
from loadtests.load.task import WAIT, Actor, Calls, Over

FULL_SECONDS = 600.0
LEFT_SECONDS = 60.0  # in which all gateways learn of the last deletes
EXEC_SECONDS = 600.0
WORKSPACE, OWN = "/srv/workspace", "/srv/own"


async def run(actor: Actor, phase: Phase) -> dict[str, float]:
    """Run the phase and return its figures; `left` counts sandboxes that remain after it."""
    calls = Calls(actor, phase, 0, time.monotonic(), None, scheduled=False)
    figures: dict[str, float] = {}
    if phase.groups is not None:
        figures = await _groups(calls, phase.groups)
    elif phase.forks is not None:
        figures = await _forks(calls, phase.forks)
    elif phase.fair_share is not None:
        figures = await shares.run(calls, phase.fair_share)
    return {**figures, "left": await _left(actor)}


async def _groups(calls: Calls, load: Groups) -> dict[str, float]:
    """Return the `groups` asked for, those `lost`, those `partial`, and how many of their sandboxes were `cold`."""
    found = {"groups": 0, "lost": 0, "partial": 0, "cold": 0}
    together = asyncio.Barrier(load.callers)

    async def group() -> None:
        found["groups"] += 1
        try:
            made = await calls.call(
                "group", lambda: AsyncSandbox.create_group(load.size, wait=WAIT, **_asked(calls))
            )
        except Over:
            found["lost"] += 1
            return
        found["cold"] += sum(not box.info.pool_hit for box in made)
        answers = await asyncio.gather(*(_answers(calls, box) for box in made))
        found["partial"] += sum(answers) != load.size
        with contextlib.suppress(Over):
            await calls.call("delete", made.delete)

    async def caller(index: int) -> None:
        for _ in range(load.rounds):
            if load.compare:
                for kind, count in (("create", 1), ("creates", load.size)):
                    await _full(calls.actor)
                    await _delete(calls, await _creates(calls, kind, count))
            if index == 0:
                await _full(calls.actor)
            await together.wait()
            await group()
            await together.wait()  # the pool is full again only once all have given theirs back

    async with asyncio.TaskGroup() as callers:
        for index in range(load.callers):
            callers.create_task(caller(index))
    return dict(found)


async def _forks(calls: Calls, load: Forks) -> dict[str, float]:
    """Return the `forks` asked for, those `lost`, and those with other files than they should have (`strange`)."""
    found = {"forks": 0, "lost": 0, "strange": 0}
    for box in await _creates(calls, "create", 1):
        with contextlib.suppress(Over):
            size = load.mib << 20
            made = await _run(
                calls, box, f"head -c {size} /dev/urandom > {WORKSPACE} && sha256sum {WORKSPACE}"
            )
            for _ in range(load.rounds):
                await _full(calls.actor)
                await _delete(calls, await _creates(calls, "creates", load.count))
                await _full(calls.actor)
                found["forks"] += load.count
                try:
                    group = await calls.call("fork", lambda: box.fork(load.count, wait=WAIT))  # noqa: B023
                except Over:
                    found["lost"] += load.count
                    continue
                found["strange"] += load.count - await _right(calls, group.boxes, wanted=made.stdout)
                await calls.call("delete", group.delete)
            own = await _run(calls, box, f"sha256sum {WORKSPACE}; test ! -e {OWN}")
            found["strange"] += own.stdout != made.stdout
        await _delete(calls, [box])
    return dict(found)


async def _right(calls: Calls, forks: Sequence[AsyncSandbox], *, wanted: str) -> int:
    """Return how many have the files of their source, and of what each has written since only their own."""

    async def first(box: AsyncSandbox) -> bool:
        done = await _run(calls, box, f"sha256sum {WORKSPACE}; test ! -e {OWN} && echo {box.id} > {OWN}")
        return done.stdout == wanted

    async def then(box: AsyncSandbox) -> bool:
        return (await _run(calls, box, f"cat {OWN}")).stdout == f"{box.id}\n"

    copied = await asyncio.gather(*(_true(first(box)) for box in forks))
    # Only once all have written: else nobody's file could be another's.
    kept = await asyncio.gather(*(_true(then(box)) for box in forks))
    return sum(both == (True, True) for both in zip(copied, kept, strict=True))


async def _run(calls: Calls, box: AsyncSandbox, command: str) -> ExecResult:
    """Run a shell command. Raises Over if it fails."""

    def check(done: ExecResult) -> str:
        return "" if done.ok else f"exit code {done.exit_code}: {done.stderr[-100:]}"

    return await calls.call(
        "exec", lambda: box.exec(command, timeout=EXEC_SECONDS), sandbox=box.id, check=check
    )


async def _answers(calls: Calls, box: AsyncSandbox) -> bool:
    return await _true(_said(calls, box))


async def _said(calls: Calls, box: AsyncSandbox) -> bool:
    return (await _run(calls, box, f"echo {box.id}")).stdout == f"{box.id}\n"


async def _true(answer: Awaitable[bool]) -> bool:
    """Return the answer; False if a call for it failed, which its event tells."""
    try:
        return await answer
    except Over:
        return False


async def _creates(calls: Calls, kind: str, count: int) -> Sequence[AsyncSandbox]:
    """Create so many at once, as one call of this kind. Return none if one of them fails."""

    async def make() -> list[AsyncSandbox]:
        made = await asyncio.gather(
            *(AsyncSandbox.create(wait=WAIT, **_asked(calls)) for _ in range(count)), return_exceptions=True
        )
        boxes = [one for one in made if isinstance(one, AsyncSandbox)]
        for error in made:
            if isinstance(error, BaseException):
                await _delete(calls, boxes)
                raise error
        return boxes

    try:
        return await calls.call(kind, make)
    except Over:
        return ()


def _asked(calls: Calls) -> dict[str, Any]:
    setup = calls.actor.setup
    return {
        "image": setup.image,
        "cpu": setup.cpu,
        "pool": setup.pool,
        "labels": (setup.label,),
        "client": calls.actor.client,
    }


async def _delete(calls: Calls, boxes: Sequence[AsyncSandbox]) -> None:
    async def one(box: AsyncSandbox) -> None:
        with contextlib.suppress(Over):
            await calls.call("delete", box.delete, sandbox=box.id)

    await asyncio.gather(*(one(box) for box in boxes))


async def _full(actor: Actor) -> None:
    """Wait until the pool has all its sandboxes ready and starts no more. Raises TimeoutError."""
    pools = AsyncPools(client=actor.client)
    async with asyncio.timeout(FULL_SECONDS):
        while True:
            found = next((pool for pool in await pools.list() if pool.name == actor.setup.pool), None)
            if found is not None and found.ready >= found.size and not found.starting:
                return
            await asyncio.sleep(0.05)


async def _left(actor: Actor) -> int:
    """Return how many of the run's sandboxes remain although all were deleted."""
    end = time.monotonic() + LEFT_SECONDS
    while left := await AsyncSandbox.list(labels=(actor.setup.label,), client=actor.client):
        if time.monotonic() > end:
            break
        await asyncio.sleep(0.2)
    return len(left)
