"""Runs the demo: a warm pool, a training whose every answer runs in a sandbox, a verdict and a report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from sandlot.reports.page import Figure, Page, Table

from sandlot_grade.demo import warm
from sandlot_grade.places import Place
from sandlot_grade.report import charts
from sandlot_grade.rl.rollouts import Runner
from sandlot_grade.rl.training import Step, Training, train

RISES = 3.0  # times the first steps' reward that the last steps' must be
RISES_BY = 0.2


@dataclass(frozen=True, slots=True)
class Order:
    """What to train: steps, answers a task and step, seconds after which no step begins, the random seed."""

    steps: int
    group: int
    seconds: float
    seed: int


async def demo(
    *, console: Console, place: Place, concurrency: int, order: Order, report: Path
) -> tuple[Training, list[str]]:
    """Train in `place` and write the report. Return the training, and a line for each fault.

    Raises SandlotError if the place does not start or refuses the sandboxes.
    """
    async with place:
        console.print(
            f"{place.name}: a pool of {concurrency} warm sandboxes, {order.steps} steps at most",
            highlight=False,
            soft_wrap=True,
        )
        await warm(place, size=concurrency)

        def show(step: Step) -> None:
            masked = f", {step.masked} masked" if step.masked else ""
            console.print(
                f"{step.ended:6.1f} s  reward {step.reward:.2f}  {step.rollouts / step.waited:.1f} rollouts/s{masked}",
                highlight=False,
            )

        made = await train(
            Runner(place=place, concurrency=concurrency).rewards,
            steps=order.steps,
            group=order.group,
            seconds=order.seconds,
            seed=order.seed,
            progress=show,
        )
    faults = [f"left behind: {line}" for line in await place.left()]
    if made.last < max(RISES * made.first, made.first + RISES_BY):
        faults.append(f"the reward did not rise: from {made.first:.2f} to {made.last:.2f}")
    page(made, place=place, order=order, faults=faults).write(report)
    return made, faults


def page(made: Training, *, place: Place, order: Order, faults: list[str]) -> Page:
    """Return the report."""
    report = Page(
        title="Sandlot demo: a policy that learns",
        summary=f"{made.rollouts} programs of a policy from scratch, each run in a sandbox of its own.",
    )
    report.figures += [
        Figure("as expected" if not faults else f"{len(faults)} faults", "verdict", not faults),
        Figure(f"{made.first:.2f} → {made.last:.2f}", "mean reward, first to last steps"),
        Figure(f"{made.rollouts / made.elapsed:.1f}", "rollouts per second"),
        Figure(f"{made.waiting:.0%}", "of the trainer's time waits for sandboxes"),
        Figure(str(made.masked), "masked: lost by the infrastructure", made.masked == 0),
    ]
    if faults:
        report.add("Faults", Table(("fault",), [(line,) for line in faults], words=frozenset({0})), wide=True)
    report.add(
        "Mean reward",
        charts.over_time(
            {"reward": [(step.ended, step.reward) for step in made.steps]}, unit="share of cases"
        ),
        wide=True,
    )
    rates = [(step.ended, step.rollouts / step.waited) for step in made.steps]
    report.add("Rollouts", charts.over_time({"rollouts": rates}, unit="per second"))
    begins = [0.0, *(step.ended for step in made.steps)]
    waits = [
        (step.ended, step.waited / (step.ended - begin))
        for begin, step in zip(begins, made.steps, strict=False)
    ]
    report.add("Waiting for sandboxes", charts.over_time({"waiting": waits}, unit="share of the time"))
    rows = [(one.task, one.answer, f"{one.share:.0%}", f"{one.reward:.2f}") for one in made.learned]
    report.add(
        "What it writes at the end",
        Table(("task", "answer", "share of answers", "reward"), rows, words=frozenset({0, 1})),
        wide=True,
    )
    facts = [
        ("place", place.name),
        ("image", place.image),
        ("parameters of the policy", str(made.parameters)),
        ("steps", str(len(made.steps))),
        ("answers a task and step", str(order.group)),
        ("seed", str(order.seed)),
    ]
    report.add("This run", Table(("what", "value"), facts, words=frozenset({0, 1})))
    return report
