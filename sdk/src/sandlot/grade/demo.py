"""The demo: a private local stack, a warm pool, about a thousand rollouts of HumanEval, and a judgement."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from sandlot import AsyncClient, AsyncPools, AsyncProcess, AsyncSandbox
from sandlot.grade.candidates import KINDS, LOOP, candidates
from sandlot.grade.errors import GradeError
from sandlot.grade.html import page
from sandlot.grade.leftovers import Leftovers
from sandlot.grade.problems import Problem, humaneval
from sandlot.grade.progress import Display
from sandlot.grade.rollout import PROGRAM, Grader, Limits
from sandlot.grade.schedule import Pace, fitting, run_all
from sandlot.grade.stack import PrivateStack
from sandlot.grade.table import render
from sandlot.grade.tally import Tally
from sandlot.grade.verify import faults
from sandlot.grade.work import Rollout
from sandlot.report.page import Figure

POOL = "demo"
LIMITS = Limits(timeout=8.0, memory=256 << 20, disk=128 << 20, pids=128)
CANARIES = 2
POOL_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the demo went: what was graded, in how many seconds, and a line for each thing that was not right."""

    made: Tally
    elapsed: float
    faults: list[str]
    report: Path


async def demo(*, console: Console, problems: int | None, concurrency: int | None, report: Path) -> Verdict:
    """Runs it and writes the report. `problems` takes only the first ones. Raises GradeError or SandlotError."""
    chosen = list(humaneval().values())[:problems]
    rollouts = demo_rollouts(chosen)
    counts = Counter(rollout.kind for rollout in rollouts)
    at_once = concurrency or fitting(memory=LIMITS.memory)
    pace = Pace(most=at_once, least=concurrency)
    stack = PrivateStack()
    leftovers = Leftovers(state_dir=stack.state_dir, outside=(Path(PROGRAM), Path("/var/tmp/filler")))
    made = Tally.ordered(kind.name for kind in KINDS if kind.name in counts)
    try:
        async with stack, asyncio.TaskGroup() as group:
            watcher = group.create_task(leftovers.watch())
            console.print(
                f"local stack with a pool of {at_once} warm sandboxes, {len(rollouts)} rollouts",
                highlight=False,
            )
            await warm(stack.client, size=at_once)
            canaries = [await _canary(stack.client) for _ in range(CANARIES)]
            begun = time.monotonic()
            grader = Grader(client=stack.client, limits=LIMITS, pool=POOL, epoch=begun)
            with Display(console=console, total=len(rollouts), concurrency=at_once) as display:
                async for outcome in run_all(rollouts, grader=grader, pace=pace):
                    made.add(outcome)
                    display.add(outcome)
            elapsed = time.monotonic() - begun
            found = faults(made, expected=counts)
            for box, process in canaries:
                if (end := await process.poll()) is not None:
                    found.append(f"a bystander's command in {box.id} did not live on: {end.verdict}")
            watcher.cancel()
        if stack.exit_code != 0:
            found.append(f"the stack ended with exit code {stack.exit_code}: {stack.last_words(limit=400)}")
        found += [f"left behind: {line}" for line in await leftovers.left()]
    except* GradeError as errors:
        raise GradeError(str(errors.exceptions[0])) from errors
    finally:
        stack.remove()
    console.print(render(made, elapsed=elapsed))
    _write_report(made, elapsed=elapsed, found=found, at_once=at_once, path=report)
    return Verdict(made=made, elapsed=elapsed, faults=found, report=report)


def demo_rollouts(problems: Sequence[Problem]) -> list[Rollout]:
    """All candidates of these problems as rollouts, those of one problem together, most endless loops last.

    A loop takes its share of a core for its whole time limit and needs none of it. One in eight bothers its
    neighbours; were all of them in the middle, the others would wait for the cores longer than they run.
    """
    rollouts = [
        Rollout(
            index=index,
            task_id=candidate.problem.task_id,
            kind=candidate.kind.name,
            code=candidate.code,
            test=candidate.problem.test,
            entry_point=candidate.problem.entry_point,
        )
        for index, candidate in enumerate(candidates(problems))
    ]
    loops = [rollout for rollout in rollouts if rollout.kind == LOOP.name]
    late = {rollout.index for number, rollout in enumerate(loops) if number % 8}
    return sorted(rollouts, key=lambda rollout: rollout.index in late)


async def warm(client: AsyncClient, *, size: int) -> None:
    """Makes the pool and waits until it is full. Raises GradeError when it does not fill."""
    pools = AsyncPools(client=client)
    await pools.set(POOL, size=size, cpu=LIMITS.cpu, memory=LIMITS.memory, disk=LIMITS.disk, pids=LIMITS.pids)
    deadline = time.monotonic() + POOL_SECONDS
    while True:
        found = next((pool for pool in await pools.list() if pool.name == POOL), None)
        if found is not None and found.ready >= size:
            return
        if time.monotonic() > deadline:
            state = (
                "is not there"
                if found is None
                else f"has {found.ready} of {size} ready ({found.message or '?'})"
            )
            raise GradeError(f"the pool {state} after {POOL_SECONDS:g} s")
        await asyncio.sleep(0.05)


async def _canary(client: AsyncClient) -> tuple[AsyncSandbox, AsyncProcess]:
    """A bystander: a sandbox with a command that must still run when all the hostile ones are through."""
    box = await AsyncSandbox.create(
        cpu=LIMITS.cpu,
        memory=LIMITS.memory,
        disk=LIMITS.disk,
        pids=LIMITS.pids,
        pool=POOL,
        network="none",
        client=client,
    )
    process = await box.start(["sh", "-c", "while :; do sleep 1; done"], stdin=False, detach=True)
    return box, process


def _write_report(made: Tally, *, elapsed: float, found: list[str], at_once: int, path: Path) -> None:
    facts = [
        ("rollouts at once", str(at_once)),
        ("time limit", f"{LIMITS.timeout:g} s"),
        ("memory limit", f"{LIMITS.memory >> 20} MiB"),
        ("cores", str(len(os.sched_getaffinity(0)))),
        ("kernel", f"{platform.system()} {platform.release()}"),
        ("Python", platform.python_version()),
    ]
    report = page(made, title="Sandlot demo: HumanEval in sandboxes", elapsed=elapsed, facts=facts)
    report.figures.insert(
        0, Figure("all as it must be" if not found else f"{len(found)} faults", "verdict", not found)
    )
    if found:
        report.add("Faults", "".join(f"<p>{_plain(line)}</p>" for line in found), wide=True)
    report.write(path)


def _plain(line: str) -> str:
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
