"""Builds the HTML report of a grading run."""

from __future__ import annotations

from collections.abc import Sequence

from sandlot.reports.page import Figure, Page, Table

from sandlot_grade.report import charts
from sandlot_grade.report.scale import seconds
from sandlot_grade.report.stats import level, rate
from sandlot_grade.table import kind_rows, step_rows, summary
from sandlot_grade.tally import STEPS, Tally


def page(made: Tally, *, title: str, elapsed: float, facts: Sequence[tuple[str, str]] = ()) -> Page:
    """Return the report; `facts` are (name, value) lines about machine and settings, `elapsed` is seconds."""
    report = Page(title=title, summary=summary(made, elapsed=elapsed) + ".")
    whole = made.percentiles("whole")
    report.figures += [
        Figure(str(len(made.outcomes)), "rollouts"),
        Figure(f"{made.rate(elapsed=elapsed):.1f}", "rollouts per second"),
        Figure(f"{made.solved} / {made.problems}", "problems solved"),
        Figure(seconds(whole["p50"]) if whole else "–", "whole rollout, p50"),
        Figure(str(made.lost), "without a grade", made.lost == 0),
    ]
    results = {name: dict(kind.results.most_common()) for name, kind in made.kinds.items()}
    report.add("How each kind ended", charts.stacked_bars(results))
    report.add("Time per step", charts.distributions({name: made.step(name) for name in STEPS}))
    done = [outcome for outcome in made.outcomes[made.reused :] if outcome.result != "lost"]
    ends = [outcome.timings.started + outcome.timings.whole for outcome in done]
    spans = [(outcome.timings.started, end) for outcome, end in zip(done, ends, strict=True)]
    report.add(
        "Throughput",
        charts.over_time({"rollouts": rate(ends, start=0.0, end=max(ends, default=0.0))}, unit="per second"),
    )
    report.add(
        "Concurrency", charts.over_time({"running": level(spans, start=0.0)}, unit="rollouts", steps=True)
    )
    kinds = Table(
        ("kind", "rollouts", "passed", "rate", "ended as"), kind_rows(made), words=frozenset({0, 4})
    )
    report.add("Kinds", kinds, wide=True)
    report.add("Percentiles", Table(("step", "p50", "p90", "p99"), step_rows(made)))
    if facts:
        report.add("This run", Table(("what", "value"), facts, words=frozenset({0, 1})))
    return report
