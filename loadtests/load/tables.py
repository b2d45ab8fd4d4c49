"""A summary as terminal tables: calls, baselines and bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich import box
from rich.table import Table
from sandlot_grade.report.scale import seconds

from loadtests.load.cells import (
    baseline_cells,
    caller_lines,
    dataset_lines,
    fault_lines,
    figure_lines,
    rollout_lines,
    stranger_lines,
)

# The rows of what a phase has besides calls.
LINES = {
    "images": dataset_lines,
    "rollouts": rollout_lines,
    "figures": figure_lines,
    "strangers": stranger_lines,
    "callers": caller_lines,
    "fault": fault_lines,
}


def tables(summary: dict[str, Any]) -> Iterator[Table]:
    yield _calls(summary)
    yield _baselines(summary)
    if summary["bounds"]:
        yield _bounds(summary)


def _calls(summary: dict[str, Any]) -> Table:
    made = _table("phase", "call", "ok", "of", "a second", "p50", "p99", "max", "service p50", "verdicts")
    for phase, found in summary["phases"].items():
        for kind, of_it in found["kinds"].items():
            latency, service = of_it["latency"], of_it["service"]
            times = [seconds(latency[name]) for name in ("p50", "p99", "max")] if latency else ["", "", ""]
            others = {
                name: count for name, count in of_it["verdicts"].items() if name not in ("done", "exited")
            }
            made.add_row(
                phase,
                kind,
                str(of_it["ok"]),
                str(of_it["count"]),
                f"{of_it['rate']:.1f}",
                *times,
                seconds(service["p50"]) if service else "",
                ", ".join(f"{name} {count}" for name, count in others.items()),
            )
        if "ledger" in found:
            ledger = ", ".join(f"{name} {count}" for name, count in found["ledger"].items())
            made.add_row(phase, "ledger", "", "", "", "", "", "", "", ledger)
        for name, lines in LINES.items():
            for line in lines(found):
                made.add_row(phase, name, *[""] * 7, line)
    return made


def _baselines(summary: dict[str, Any]) -> Table:
    made = _table("baseline", "calls", "p50", "p99", "a second", "")
    for name, found in summary["baselines"].items():
        made.add_row(*baseline_cells(name, found))
    return made


def _bounds(summary: dict[str, Any]) -> Table:
    made = _table("bound", "measured", "must be", "")
    for row in summary["bounds"]:
        value = "none" if row["value"] is None else f"{row['value']:.3g} {row['unit']}"
        made.add_row(row["what"], value, row["limit"], "[green]held[/]" if row["held"] else "[red]MISSED[/]")
    return made


def _table(*names: str) -> Table:
    made = Table(box=box.SIMPLE_HEAD)
    for name in names:
        text = name in ("phase", "call", "verdicts", "baseline", "bound", "")
        made.add_column(
            name, justify="left" if text else "right", no_wrap=name in ("phase", "call", "baseline")
        )
    return made
