"""The report of a load test: one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sandlot.reports.page import Figure, Page, Table
from sandlot_grade.report import charts
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
from loadtests.load.plots import MIB, plots
from loadtests.load.trial import Found

NOTES = {
    "Latency over time": "From the moment that the schedule intended to the answer; p50 and p99 of each sixtieth of the run.",
    "Latency, by share of calls": "From the intended moment; `beside` is the same command spawned beside the load.",
    "CPU": "Between one look and the next; commands that end between two looks are not in it.",
}

# The tables of what phases have besides calls.
LINES = {
    "Faults": fault_lines,
    "Strangers": stranger_lines,
    "Callers of `pods/exec`": caller_lines,
    "Rollouts": rollout_lines,
    "Figures": figure_lines,
    "Images": dataset_lines,
}


def write_page(path: Path, found: Found) -> None:
    page(found).write(path)


def page(found: Found) -> Page:
    """Build the page: figures, then plots over time, then tables."""
    told = found.summary
    length = " (short)" if told["short"] else ""
    made = Page(
        title=f"Load test: {told['profile']}{length}", summary=f"{told['what']} On {told['place']['name']}."
    )
    made.figures += _figures(told)
    rows = told["bounds"]
    if rows:
        shares = [
            (row["what"], min(row["used"] if row["used"] is not None else 2.0, 2.0), row["held"])
            for row in rows
        ]
        note = "Shorter is better; over the line is missed."
        made.add("Share of each bound that is used", charts.bounds(shares), note=note)
    for heading, chart in plots(found).items():
        made.add(heading, chart, note=NOTES.get(heading, ""))
    for heading, lines in LINES.items():
        if found_lines := [(phase, line) for phase, of_it in told["phases"].items() for line in lines(of_it)]:
            made.add(heading, Table(("phase", "what"), found_lines, words=frozenset({0, 1})))
    made.add("Calls", _calls(told), wide=True)
    made.add("Baselines of the same run", _baselines(told))
    made.add("Load generator", _generator(told), note="; ".join(told["lagged"]) or "It did not lag.")
    made.add("Parts", _parts(told))
    if rows:
        made.add("Bounds", _bounds(rows), wide=True)
    facts = told["machine"] | told["parameters"] | {"seed": told["seed"], "began": told["began"]}
    made.add(
        "Machine and parameters",
        Table(("what", "value"), [(k, str(v)) for k, v in facts.items()], words=frozenset({1})),
    )
    return made


def _figures(told: dict[str, Any]) -> list[Figure]:
    rows = told["bounds"]
    held = sum(row["held"] for row in rows)
    phases = told["phases"].values()
    lost = sum(phase["infrastructure"] for phase in phases)
    made = [
        Figure(f"{held} / {len(rows)}", "bounds held", held == len(rows) if rows else None),
        Figure(str(sum(phase["calls"] for phase in phases)), "calls"),
        Figure(str(lost), "calls that the infrastructure lost", lost == 0),
        Figure(str(sum(phase["refused"] for phase in phases)), "calls refused"),
    ]
    if any("ledger" in phase for phase in phases):
        ledgers = [phase["ledger"] for phase in phases if "ledger" in phase]
        wrong = sum(ledger["lost"] + ledger["twice"] for ledger in ledgers)
        made.append(Figure(str(wrong), "commands lost or run twice", wrong == 0))
    made.append(Figure("yes" if told["lagged"] else "no", "the load generator lagged", not told["lagged"]))
    return made


def _calls(told: dict[str, Any]) -> Table:
    rows: list[tuple[str, ...]] = []
    for phase, found in told["phases"].items():
        for kind, of_it in found["kinds"].items():
            latency, service = of_it["latency"], of_it["service"]
            times = (
                [seconds(latency[name]) for name in ("p50", "p90", "p99", "p999", "max")]
                if latency
                else [""] * 5
            )
            served = [seconds(service[name]) for name in ("p50", "p99")] if service else ["", ""]
            rows.append(
                (phase, kind, f"{of_it['ok']} of {of_it['count']}", f"{of_it['rate']:.1f}", *times, *served)
            )
    head = (
        "phase",
        "call",
        "ok",
        "a second",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "service p50",
        "service p99",
    )
    return Table(head, rows, words=frozenset({0, 1}))


def _baselines(told: dict[str, Any]) -> Table:
    rows = [baseline_cells(name, found) for name, found in told["baselines"].items()]
    return Table(
        ("baseline", "calls", "p50", "p99", "a second, many callers", ""), rows, words=frozenset({0, 5})
    )


def _generator(told: dict[str, Any]) -> Table:
    rows = [
        (
            phase,
            str(of_it["processes"]),
            f"{of_it['cpu_ms_per_call']:.3f} ms",
            f"{of_it['cores']:.2f}",
            seconds(of_it["lag"]["p99"]) if of_it["lag"] else "",
            seconds(of_it["lag"]["max"]) if of_it["lag"] else "",
            seconds(of_it["sends"]["p99"]) if of_it["sends"] else "",
            "yes" if of_it["lagged"] else "no",
        )
        for phase, of_it in ((name, found["generator"]) for name, found in told["phases"].items())
    ]
    bad = frozenset(index for index, row in enumerate(rows) if row[-1] == "yes")
    head = ("phase", "processes", "CPU a call", "cores", "loop lag p99", "max", "sends late p99", "lagged")
    return Table(head, rows, bad=bad, words=frozenset({0}))


def _parts(told: dict[str, Any]) -> Table:
    rows = [
        (
            phase,
            part,
            f"{used['cores']:.3f}",
            f"{used['memory'] / MIB:.1f} MiB",
            f"{used['memory_growth']:.2f} ×",
            str(used["processes"]),
        )
        for phase, found in told["phases"].items()
        for part, used in found["parts"].items()
    ]
    return Table(
        ("phase", "part", "cores", "memory, most", "growth", "processes"), rows, words=frozenset({0, 1})
    )


def _bounds(rows: list[dict[str, Any]]) -> Table:
    cells = [
        (
            row["what"],
            "none" if row["value"] is None else f"{row['value']:.4g} {row['unit']}",
            row["limit"],
            "held" if row["held"] else "missed",
            row["of"],
        )
        for row in rows
    ]
    bad = frozenset(index for index, row in enumerate(rows) if not row["held"])
    return Table(("bound", "measured", "must be", "", "of"), cells, bad=bad, words=frozenset({0, 3, 4}))
