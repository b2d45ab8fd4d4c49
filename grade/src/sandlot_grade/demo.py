"""Runs the demo: a warm pool and about 1,000 rollouts of HumanEval, right, wrong and hostile, and a verdict."""

from __future__ import annotations

import os
import platform
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from sandlot import AsyncPools, AsyncProcess, AsyncSandbox
from sandlot.reports.page import Figure

from sandlot_grade.candidates import KINDS, LOOP, candidates
from sandlot_grade.html import page
from sandlot_grade.places import Place
from sandlot_grade.problems import Problem, humaneval
from sandlot_grade.progress import Display
from sandlot_grade.rollout import Grader, Limits
from sandlot_grade.schedule import Pace, run_all
from sandlot_grade.table import render
from sandlot_grade.tally import Tally
from sandlot_grade.verify import faults
from sandlot_grade.work import Rollout

LIMITS = Limits(timeout=8.0, memory=256 << 20, disk=128 << 20, pids=128)
CANARIES = 2
POOL_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The demo's result: the graded rollouts, the seconds, and a line for each fault."""

    made: Tally
    elapsed: float
    faults: list[str]
    report: Path


async def demo(*, console: Console, place: Place, problems: int | None, pace: Pace, report: Path) -> Verdict:
    """Run the demo and write the report, for the first `problems` only if given. Raises GradeError or SandlotError."""
    concurrency = pace.most
    chosen = list(humaneval().values())[:problems]
    rollouts = demo_rollouts(chosen)
    counts = Counter(rollout.kind for rollout in rollouts)
    made = Tally.ordered(kind.name for kind in KINDS if kind.name in counts)
    async with place:
        console.print(
            f"{place.name}: a pool of {concurrency} warm sandboxes, {len(rollouts)} rollouts",
            highlight=False,
            soft_wrap=True,
        )
        await warm(place, size=concurrency)
        canaries = [await _canary(place) for _ in range(CANARIES)]
        begun = time.monotonic()
        grader = Grader(
            client=place.client,
            limits=LIMITS,
            image=place.image,
            pool=place.pool,
            labels=place.labels,
            epoch=begun,
        )
        with Display(console=console, total=len(rollouts), concurrency=concurrency) as display:
            async for outcome in run_all(rollouts, grader=grader, pace=pace):
                made.add(outcome)
                display.add(outcome)
        elapsed = time.monotonic() - begun
        found = faults(made, expected=counts, instead=place.instead)
        for box, process in canaries:
            if (end := await process.poll()) is not None:
                found.append(f"the command of another sandbox, {box.id}, did not survive: {end.verdict}")
    found += [f"left behind: {line}" for line in await place.left()]
    console.print(render(made, elapsed=elapsed))
    _write_report(made, elapsed=elapsed, found=found, place=place, at_once=concurrency, path=report)
    return Verdict(made=made, elapsed=elapsed, faults=found, report=report)


def demo_rollouts(problems: Sequence[Problem]) -> list[Rollout]:
    """Return all candidates of these problems as rollouts, grouped by problem, most endless loops last.

    A loop takes its share of a core for its whole timeout and needs none of it. One in eight competes with others;
    were all of them in the middle, the others would wait for the cores longer than they run.
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


async def warm(place: Place, *, size: int) -> None:
    """Create the pool and wait until it is full. Raises SandlotError if it does not fill."""
    pools = AsyncPools(client=place.client)
    await pools.set(
        place.pool,
        size=size,
        image=place.image,
        **LIMITS.sizes(),
    )
    await pools.wait_warm(place.pool, timeout=POOL_SECONDS)


async def _canary(place: Place) -> tuple[AsyncSandbox, AsyncProcess]:
    """Start a sandbox with a command that must still run when all hostile ones have ended."""
    box = await AsyncSandbox.create(
        place.image,
        pool=place.pool,
        labels=place.labels,
        network="none",
        client=place.client,
        **LIMITS.sizes(),
    )
    process = await box.start(["sh", "-c", "while :; do sleep 1; done"], stdin=False, detach=True)
    return box, process


def _write_report(
    made: Tally, *, elapsed: float, found: list[str], place: Place, at_once: int, path: Path
) -> None:
    facts = [
        ("place", place.name),
        ("image", place.image),
        ("rollouts at once", str(at_once)),
        ("time limit", f"{LIMITS.timeout:g} s"),
        ("memory limit", f"{LIMITS.memory >> 20} MiB"),
        ("cores of this machine", str(len(os.sched_getaffinity(0)))),
        ("kernel", f"{platform.system()} {platform.release()}"),
        ("Python", platform.python_version()),
    ]
    report = page(made, title="Sandlot demo: HumanEval in sandboxes", elapsed=elapsed, facts=facts)
    report.figures.insert(
        0, Figure("all as expected" if not found else f"{len(found)} faults", "verdict", not found)
    )
    if found:
        report.add("Faults", "".join(f"<p>{_plain(line)}</p>" for line in found), wide=True)
    report.write(path)


def _plain(line: str) -> str:
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
