"""Puts the load tests' last reports into docs/performance.md: `python -m loadtests.publish [REPORTS]`, figures beside it.

Only what is between the marks is written; the rest of the page belongs to whoever writes it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sandlot.report.scale import seconds

from loadtests.load.cells import fault_lines

DOCS = Path(__file__).resolve().parents[1] / "docs"
BEGIN, END = "<!-- load tests: begin -->", "<!-- load tests: end -->"
PLOTS = {"latency-over-time": "latency over time", "latency-by-share-of-calls": "latency by share of calls"}


class PublishError(Exception):
    """Nothing was written; the message says why."""


def section(summaries: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The lines between the marks: a table of all bounds, then each profile with its calls and plots."""
    yield from ("| profile | what | bound | measured |", "|---|---|---|---|")
    for told in summaries:
        for row in told["bounds"]:
            value = "none" if row["value"] is None else f"{row['value']:.3g} {row['unit']}".strip()
            measured = value if row["held"] else f"**missed**: {value}"
            limit = f"{row['limit']} {row['unit']}".strip()
            yield f"| `{told['profile']}` | {row['what']} | {limit} | {measured} |"
    for told in summaries:
        yield from (
            "",
            f"### {told['profile']}",
            "",
            f"{told['what']} On {told['place']['name']}. {_how(told)}",
            "",
        )
        yield from _calls(told)
        yield ""
        yield " ".join(
            f"![{told['profile']}: {words}](performance/{told['profile']}-{plot}.svg)"
            for plot, words in PLOTS.items()
        )


def _how(told: dict[str, Any]) -> str:
    parameters = ", ".join(f"{name} {value}" for name, value in told["parameters"].items())
    broken = "; ".join(line for found in told["phases"].values() for line in fault_lines(found))
    lagged = "; ".join(told["lagged"])
    said = ((broken, "Faults"), (lagged, "The generator lagged"))
    return f"Parameters: {parameters}." + "".join(f" {what}: {text}." for text, what in said if text)


def _calls(told: dict[str, Any]) -> Iterator[str]:
    """Calls and baselines with their times, the latter also as multiples of a bare spawn's."""
    spawn = told["baselines"]["spawn"]["p50"]
    yield from ("| | calls | a second | p50 | p99 | p50 ÷ bare spawn |", "|---|---|---|---|---|---|")
    for phase, found in told["phases"].items():
        for kind, of_it in found["kinds"].items():
            if of_it["latency"]:
                name = f"{phase}: {kind}"
                yield _row(name, of_it["ok"], of_it["rate"], of_it["latency"], spawn)
    for name, found in told["baselines"].items():
        if "p50" in found:
            yield _row(f"baseline: {name}", found["count"], found.get("rate"), found, spawn)


def _row(name: str, count: int, rate: float | None, times: dict[str, float], spawn: float) -> str:
    a_second = "" if rate is None else f"{rate:.4g}"
    p50, p99 = times["p50"], times["p99"]
    ratio = p50 / spawn
    times_spawn = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
    return f"| {name} | {count} | {a_second} | {seconds(p50)} | {seconds(p99)} | {times_spawn} |"


def publish(reports: Path, docs: Path = DOCS) -> None:
    """Raises PublishError."""
    page = docs / "performance.md"
    found = sorted(reports.glob("*/summary.json"))
    if not found:
        raise PublishError(f"{reports}: no summary.json in its folders; `make loadtest` writes them")
    text = page.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise PublishError(f"{page}: must have a line {BEGIN} and one {END}")
    summaries = [json.loads(path.read_text()) for path in found]
    lines = "\n".join(section(summaries))
    figures = docs / "performance"
    figures.mkdir(exist_ok=True)
    for path, told in zip(found, summaries, strict=True):
        for plot in PLOTS:
            shutil.copyfile(
                path.parent / "figures" / f"{plot}.svg", figures / f"{told['profile']}-{plot}.svg"
            )
    page.write_text(f"{before}{BEGIN}\n{lines}\n{END}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", type=Path, nargs="?", default=Path("reports/load"))
    try:
        publish(parser.parse_args().reports)
    except PublishError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
