"""The HTML report of a benchmark run."""

from __future__ import annotations

from pathlib import Path

from sandlot.reports.page import Figure, Page, Table
from sandlot_grade.report import charts

from loadtests.bounds import Bound
from loadtests.reading import Again, Reading


def write_report(
    path: Path,
    *,
    readings: dict[str, Reading],
    bounds: dict[str, Bound],
    again: dict[str, Again],
    machine: dict[str, str],
) -> None:
    """Write the page. `again` are the rows that were measured twice, `machine` (name, value) facts."""
    values = {name: reading.value for name, reading in readings.items()}
    states = {name: bounds[name].state(values) for name in readings}
    held = {name: state != "missed" for name, state in states.items()}
    fell = [name for name, good in held.items() if not good]
    page = Page(
        title="Sandlot benchmarks",
        summary="Each row is measured in one run with its floor on the same machine; docs/benchmarks.md says how.",
    )
    page.figures.append(Figure(f"{len(held) - len(fell)} / {len(held)}", "bounds held", not fell))
    for name, reading in readings.items():
        bound = bounds[name]
        page.figures.append(
            Figure(f"{reading.value:.3g} {bound.unit}", f"{bound.what} ({bound.limit})", held[name])
        )
    shares = [
        (bounds[name].what, min(bounds[name].used(reading.value), 2.0), held[name])
        for name, reading in readings.items()
    ]
    page.add(
        "Share of each bound that is used",
        charts.bounds(shares),
        note="Shorter is better; over the line is missed.",
    )
    curves = {name: times for reading in readings.values() for name, times in reading.curves.items()}
    page.add("Latencies", charts.distributions(curves))
    rows = [
        (
            bounds[name].what,
            f"{reading.value:.4g} {bounds[name].unit}",
            bounds[name].limit,
            states[name] + _tries(again.get(name)),
            "; ".join(f"{part} {value}" for part, value in reading.parts.items()),
        )
        for name, reading in readings.items()
    ]
    bad = frozenset(index for index, good in enumerate(held.values()) if not good)
    head = ("row", "measured", "bound", "", "made of")
    page.add("Rows", Table(head, rows, bad=bad, words=frozenset({0, 3, 4})), wide=True)
    page.add("Machine", Table(("what", "value"), list(machine.items()), words=frozenset({0, 1})))
    page.write(path)


def _tries(again: Again | None) -> str:
    if again is None:
        return ""
    return " at the second try" if again.taken else "; a second try was no better"
