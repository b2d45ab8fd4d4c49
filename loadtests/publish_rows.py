"""Publishes the last run of a profile on simulated nodes: `python -m loadtests.publish_rows NAME [REPORTS]` writes its table.

The table is in docs/performance.md, between two comments with the profile's name; what it means is said around it. It has
all rows of `reports/NAME.json`, with the date, the machine and the command. A report in which a row has
another text or unit than now is refused: its value would stand beside words that it is not about.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sandlot_grade.report.scale import seconds

from loadtests.bounds import Bound, read_bounds
from loadtests.publish import PublishError, main

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
NAMES = ("thousands", "autoscale")


def table(told: dict[str, Any], *, name: str, bounds: dict[str, Bound]) -> Iterator[str]:
    """Yield the lines of a profile's table. Raises PublishError if the report lacks a row, or has another definition of it."""
    rows: dict[str, Any] = told["rows"]
    if absent := [row for row in bounds if row not in rows]:
        raise PublishError(f"the report has no row {absent[0]}: run the profile without --only")
    for row, bound in bounds.items():
        _check_definition(rows[row], bound, name=name)
    machine = told["machine"]
    yield (
        f"{datetime.fromisoformat(told['began']).date()}, {machine['cores']} cores, {machine['kernel']}, Python "
        f"{machine['python']}, load {machine['load at the beginning']} at the beginning, {seconds(told['seconds'])} in all; "
        f"`make loadtest-cluster PROFILE={name}`:"
    )
    yield from ("", "| measurement | bound | measured | made of |", "|---|---|---|---|")
    for row, bound in bounds.items():
        yield _row(rows[row], bound)


def _check_definition(row: dict[str, Any], bound: Bound, *, name: str) -> None:
    """Raise PublishError if the row was measured by another definition than its bound's."""
    measured, now = (row.get("what"), row.get("unit")), (bound.what, bound.unit)
    if measured != now:
        told = "does not say what it measured" if measured[0] is None else f"is {_defined(*measured)}"
        raise PublishError(
            f"{bound.name}: in the report it {told}, now it is {_defined(*now)}: run "
            f"`make loadtest-cluster PROFILE={name}` again"
        )


def _defined(what: object, unit: object) -> str:
    return f'"{what}" in "{unit}"' if unit else f'"{what}"'


def _row(row: dict[str, Any], bound: Bound) -> str:
    value = "none" if row["value"] is None else f"{row['value']:.3g} {bound.unit}".strip()
    measured = value if row["held"] else f"**missed**: {value}"
    again = _tries(row, bound) if row["second_try"] else ""
    parts = "; ".join(f"{name} {part}" for name, part in row["parts"].items())
    cells = (bound.what, f"{bound.limit} {bound.unit}".strip(), measured + again, parts)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _tries(row: dict[str, Any], bound: Bound) -> str:
    if "second_taken" not in row:  # a report from before it was told
        return ", the better of two tries"
    if not row["second_taken"]:
        return ", a second try was no better"
    first = "none" if row["first"] is None else f"{row['first']:.3g} {bound.unit}".strip()
    return f", at the second try; {first} at the first"


def publish(name: str, reports: Path, page: Path = PAGE) -> Path:
    """Write the profile's table into the page, and return its path. Raises PublishError."""
    report = reports / f"{name}.json"
    try:
        told = json.loads(report.read_text())
    except FileNotFoundError as error:
        raise PublishError(
            f"{report}: is not there; `make loadtest-cluster PROFILE={name}` writes it"
        ) from error
    bounds = read_bounds(Path(__file__).with_name(f"rangespec-{name}.yaml"))
    lines = "\n".join(table(told, name=name, bounds=bounds))
    between = re.compile(rf"(<!-- {name}: [^\n]* -->\n)(.*?)(<!-- end of {name} -->)", re.DOTALL)
    text, count = between.subn(lambda found: f"{found[1]}\n{lines}\n\n{found[3]}", page.read_text())
    if count != 1:
        raise PublishError(f"{page}: needs one place between the comments of {name}, has {count}")
    page.write_text(text)
    return page


if __name__ == "__main__":
    sys.exit(main(publish, names=NAMES, what="the profile", reports="reports", description=__doc__))
