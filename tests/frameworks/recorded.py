"""The table of docs/framework-runs.md: what the last runs of the frameworks' suites showed. A run replaces the rows of what it ran.

`python -m tests.frameworks.recorded REPORT PAGE` writes those of a run on the cluster, whose report of pytest is given.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from xml.etree import ElementTree

from tests.frameworks.listed import Framework, all_listed
from tests.frameworks.outcomes import Outcomes, read

BEGIN = "<!-- runs: written by python -m tests.frameworks --write -->"
END = "<!-- end of runs -->"
LOCAL, CLUSTER = "local backend", "cluster, gVisor"
MOST = 300  # characters of a cell
BAR = r"\|"  # a bar of a cell's text


@dataclass(frozen=True, kw_only=True)
class Row:
    """One suite of one framework; each field is the text of a cell."""

    framework: str
    release: str
    suite: str
    passed: str
    failed: str  # "0", or the number and the reasons
    skipped: str
    where: str
    run: str  # its date

    @property
    def ok(self) -> bool:
        return self.failed == "0" and self.passed != "0"


def rows_of(
    framework: Framework, release: str, found: Iterable[Outcomes], *, where: str, run: str
) -> list[Row]:
    """The rows of a framework's suites."""
    return [
        Row(
            framework=framework.name,
            release=release or "–",
            suite=each.suite,
            passed=str(each.passed),
            failed=_counted(each.failed),
            skipped=_counted(each.skipped),
            where=where,
            run=run,
        )
        for each in found
    ]


def recorded(text: str) -> list[Row]:
    """The rows of a page. Raises ValueError if it lacks the table's markers."""
    _, begin, rest = text.partition(BEGIN)
    table, end, _ = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the markers of the table: add {BEGIN} and {END}")
    names = [field.name for field in fields(Row)]
    found = [_cells(line) for line in table.splitlines() if line.startswith("|")]
    return [Row(**dict(zip(names, cells, strict=True))) for cells in found[2:]]


def with_rows(text: str, new: Sequence[Row], *, order: Sequence[str]) -> str:
    """The page with new rows in place of those of the same frameworks and places. `order`: of the frameworks, by name."""
    replaced = {(row.framework, row.where) for row in new}
    kept = [row for row in recorded(text) if (row.framework, row.where) not in replaced]
    place = {name: number for number, name in enumerate(order)}
    rows = sorted([*kept, *new], key=lambda row: (row.where != LOCAL, place.get(row.framework, len(place))))
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    names = [field.name for field in fields(Row)]
    lines = [_line(cells) for cells in (names, *(astuple(row) for row in rows))]
    lines.insert(1, "|---" * len(names) + "|")
    return "\n".join([f"{before}{BEGIN}", *lines, f"{END}{after}"])


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def _counted(reasons: Mapping[str, str]) -> str:
    if not reasons:
        return "0"
    told = "; ".join(f"{test}: {why}" for test, why in reasons.items())
    text = f"{len(reasons)}: {told}".replace("\n", " ").replace("`", "'").replace("<", "‹")
    return text if len(text) <= MOST else f"{text[: MOST - 1]}…"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"


def _cells(line: str) -> list[str]:
    """The cells of a line that `_line` has made."""
    return [cell.replace(BAR, "|").strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def main() -> int:
    """Write the rows of a report of the cluster's run."""
    top = argparse.ArgumentParser(prog="python -m tests.frameworks.recorded", description=__doc__)
    top.add_argument("report", type=Path, help="of pytest --junitxml, of tests/kubernetes/frameworks")
    top.add_argument("page", type=Path)
    arguments = top.parse_args()
    listed = all_listed()
    new: list[Row] = []
    for framework in listed:
        if found := _of_framework(arguments.report, framework):
            new += rows_of(framework, framework.release, found, where=CLUSTER, run=today())
    order = [framework.name for framework in listed]
    arguments.page.write_text(with_rows(arguments.page.read_text(), new, order=order))
    return 0


def _of_framework(report: Path, framework: Framework) -> list[Outcomes]:
    """The outcomes of a framework's tests."""
    names = set(framework.cluster)
    tree = ElementTree.parse(report)
    for suite in tree.getroot().iter("testsuite"):
        for case in list(suite.iter("testcase")):
            module = case.get("classname", "").rpartition(".")[2]
            if module not in names and case.get("name", "").partition("[")[0] not in names:
                suite.remove(case)
    with tempfile.NamedTemporaryFile(suffix=".xml") as file:
        tree.write(file.name)
        found = read(Path(file.name))
    return [each for each in found if each.passed or each.failed or each.skipped]


if __name__ == "__main__":
    sys.exit(main())
