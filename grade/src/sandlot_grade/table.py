"""Renders the tables at the end of a grading run, for a terminal or as plain text."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sandlot_grade.report.scale import seconds
from sandlot_grade.tally import STEPS, Tally


def kind_rows(made: Tally) -> list[tuple[str, str, str, str, str]]:
    """Return (kind, problems or rollouts, passed, pass rate, results) as text, one row a kind."""
    rows: list[tuple[str, str, str, str, str]] = []
    for kind in made.kinds.values():
        rate = "–" if kind.pass_rate is None else f"{kind.pass_rate:.1%}"
        results = ", ".join(f"{name} {count}" for name, count in kind.results.most_common())
        rows.append((kind.name, str(kind.total), str(kind.results["passed"]), rate, results))
    return rows


def step_rows(made: Tally) -> list[tuple[str, str, str, str]]:
    """Return (step, p50, p90, p99) as text, one row for each measured step."""
    rows: list[tuple[str, str, str, str]] = []
    for name in STEPS:
        found = made.percentiles(name)
        if found:
            rows.append((name, seconds(found["p50"]), seconds(found["p90"]), seconds(found["p99"])))
    return rows


def summary(made: Tally, *, elapsed: float) -> str:
    """Return one sentence with the counts and the rate; `elapsed` is seconds."""
    total = len(made.outcomes)
    parts = [
        f"{total} rollouts of {made.problems} problems in {seconds(elapsed)}",
        f"{made.rate(elapsed=elapsed):.1f} rollouts/s",
        f"{made.passed} passed",
        f"{made.solved} problems solved",
    ]
    if made.reused:
        parts.append(f"{made.reused} reused from an earlier run")
    if made.retried:
        parts.append(
            f"{made.retried} attempts lost by the infrastructure, {made.lost} rollouts without a grade"
        )
    return ", ".join(parts)


def render(made: Tally, *, elapsed: float) -> RenderableType:
    """Render both tables and the summary for a rich console."""
    kinds = Table(box=box.SIMPLE_HEAD, title="results", title_justify="left")
    for name, side in (("kind", "left"), ("rollouts", "right"), ("passed", "right"), ("rate", "right")):
        kinds.add_column(name, justify="right" if side == "right" else "left", no_wrap=True)
    kinds.add_column("ended as")
    for row in kind_rows(made):
        kinds.add_row(*row)
    steps = Table(box=box.SIMPLE_HEAD, title="time per step", title_justify="left")
    for name in ("step", "p50", "p90", "p99"):
        steps.add_column(name, justify="left" if name == "step" else "right", no_wrap=True)
    for row in step_rows(made):
        steps.add_row(*row)
    return Group(kinds, steps, Text(summary(made, elapsed=elapsed)))
