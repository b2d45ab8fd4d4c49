"""Generates README's table of the frameworks that tests run, from tests/frameworks/frameworks.toml and docs/framework-runs.md; `--check` compares."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.frameworks.listed import Framework, all_listed  # noqa: E402
from tests.frameworks.recorded import CLUSTER, Row, recorded  # noqa: E402

README = ROOT / "README.md"
RUNS = ROOT / "docs" / "framework-runs.md"
BEGIN, END = "<!-- frameworks: written by tools/frameworks_table.py -->", "<!-- end of frameworks -->"


def table(frameworks: Iterable[Framework], runs: Iterable[Row]) -> str:
    """Return a Markdown table with one row per framework."""
    runs = list(runs)
    lines = ["| framework | how | in CI | last whole run |", "|---|---|---|---|"]
    for each in frameworks:
        use = each.use.replace("|", chr(92) + "|")
        own = [row for row in runs if row.framework == each.name]
        lines.append(f"| [{each.name}]({each.page}) | {use} | {each.release} | {_last(own)} |")
    return "\n".join(lines)


def _last(rows: list[Row]) -> str:
    """Return what the last whole runs of a framework's suites showed, here and on the cluster."""
    told: list[str] = []
    for where in sorted({row.where for row in rows}, key=lambda where: where == CLUSTER):
        there = [row for row in rows if row.where == where]
        failed = sum(int(row.failed.partition(":")[0]) for row in there)
        counts = f"{sum(int(row.passed) for row in there)} passed" + (f", {failed} failed" if failed else "")
        told.append(f"{there[0].release}, {there[0].run}, {where}: {counts}")
    return "; ".join(told) or "none yet"


def main() -> int:
    """Write the table, or say that it is outdated."""
    top = argparse.ArgumentParser(description=__doc__)
    top.add_argument("--check", action="store_true", help="write nothing; fail if it would change")
    arguments = top.parse_args()
    text = README.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        print(f"README.md lacks the markers of the table: add {BEGIN} and {END}", file=sys.stderr)
        return 1
    wanted = f"{before}{begin}\n{table(all_listed(), recorded(RUNS.read_text()))}\n{end}{after}"
    if wanted == text:
        return 0
    if arguments.check:
        print("README.md: the table of frameworks is outdated: run make generate", file=sys.stderr)
        return 1
    README.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
