"""Generates README's table of the frameworks that tests run, from tests/frameworks/frameworks.toml; `--check` compares."""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "frameworks" / "frameworks.toml"
README = ROOT / "README.md"
BEGIN, END = "<!-- frameworks: written by tools/frameworks_table.py -->", "<!-- end of frameworks -->"


def table(frameworks: list[dict[str, Any]]) -> str:
    """Return a Markdown table with one row per framework."""
    rows = ["| framework | how | tested with |", "|---|---|---|"]
    for each in frameworks:
        page, tested = each["page"], f"{each['package']} {each['version']}"
        rows.append(f"| [{each['name']}]({page}) | {each['use'].replace('|', chr(92) + '|')} | {tested} |")
    return "\n".join(rows)


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
    wanted = f"{before}{begin}\n{table(tomllib.loads(LIST.read_text()).get('frameworks', []))}\n{end}{after}"
    if wanted == text:
        return 0
    if arguments.check:
        print("README.md: the table of frameworks is outdated: run make generate", file=sys.stderr)
        return 1
    README.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
