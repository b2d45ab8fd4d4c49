"""Grades a file of candidates: reads it, reuses earlier results, runs the rest and writes the results."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from sandlot import AsyncClient
from sandlot.reports.page import Page

from sandlot_grade.errors import InputError
from sandlot_grade.html import page
from sandlot_grade.problems import Problem, humaneval, read_problems
from sandlot_grade.progress import Display
from sandlot_grade.results import Writer, earlier, results_path
from sandlot_grade.rollout import Grader, Limits, key
from sandlot_grade.samples import read_samples
from sandlot_grade.schedule import Pace, fitting, run_all
from sandlot_grade.tally import Tally, tally_of_earlier


@dataclass(frozen=True, slots=True)
class Order:
    """The options of a run; see `sandlot grade --help`."""

    file: Path
    problems: Path | None
    first: int | None
    output: Path | None
    image: str
    pool: str | None
    network: str
    limits: Limits
    concurrency: int | None
    fresh: bool


@dataclass(frozen=True, slots=True)
class Done:
    """A finished run of `elapsed` seconds; `made` includes the reused results of an earlier one."""

    order: Order
    output: Path
    made: Tally
    elapsed: float

    def document(self) -> dict[str, Any]:
        """Return the run as a JSON object."""
        graded = len(self.made.outcomes) - self.made.lost
        return {
            "file": str(self.order.file),
            "results": str(self.output),
            "rollouts": len(self.made.outcomes),
            "reused": self.made.reused,
            "passed": self.made.passed,
            "pass_rate": self.made.passed / graded if graded else None,
            "problems": self.made.problems,
            "solved": self.made.solved,
            "lost": self.made.lost,
            "seconds": self.elapsed,
            "kinds": {name: dict(kind.results) for name, kind in self.made.kinds.items()},
            "timings": {name: self.made.percentiles(name) for name in ("create", "exec", "whole")},
        }

    def page(self) -> Page:
        """Return the run as an HTML report."""
        facts = [
            ("file", self.order.file.name),
            ("image", self.order.image),
            ("time limit", f"{self.order.limits.timeout:g} s"),
            ("memory limit", f"{self.order.limits.memory >> 20} MiB"),
            ("reused from an earlier run", str(self.made.reused)),
        ]
        return page(self.made, title=f"Grades of {self.order.file.name}", elapsed=self.elapsed, facts=facts)


def output_path(order: Order) -> Path:
    """Return the path of the results. Raises InputError."""
    output = order.output or results_path(order.file)
    if output.suffix == ".gz":
        # A compressed file that a crash truncated is unreadable, and the next run would start from the beginning.
        message = "results are written line by line, uncompressed; pass --output a name without .gz"
        raise InputError(message, path=output)
    return output


async def grade_file(order: Order, *, console: Console) -> Done:
    """Grade the rollouts without a result. Raises InputError, GradeError, or an error of the SDK."""

    def problems() -> Mapping[str, Problem]:
        return humaneval() if order.problems is None else read_problems(order.problems)

    output = output_path(order)
    rollouts = read_samples(order.file, problems=problems, first=order.first)
    keys = {
        rollout.index: key(rollout, limits=order.limits, image=order.image, network=order.network)
        for rollout in rollouts
    }
    kept = {} if order.fresh else earlier(output, keys=keys)
    if kept:
        console.print(f"{len(kept)} of {len(rollouts)} are already graded in {output}", highlight=False)
    made = tally_of_earlier(kept.values())
    todo = [rollout for rollout in rollouts if rollout.index not in kept]
    at_once = min(order.concurrency or fitting(memory=order.limits.memory), max(len(todo), 1))
    pace = Pace(most=at_once, least=order.concurrency)
    begun = time.monotonic()
    async with AsyncClient() as client:
        grader = Grader(
            client=client,
            limits=order.limits,
            image=order.image,
            pool=order.pool,
            network=order.network,
            epoch=begun,
        )
        with (
            Writer(output, kept=kept) as writer,
            Display(console=console, total=len(todo), concurrency=at_once) as display,
        ):
            async for outcome in run_all(todo, grader=grader, pace=pace):
                writer.add(outcome)
                made.add(outcome)
                display.add(outcome)
    return Done(order=order, output=output, made=made, elapsed=time.monotonic() - begun)
