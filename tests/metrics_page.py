"""docs/metrics.md as data, and what a program prints at /metrics in the same form."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

PAGE = (Path(__file__).parents[1] / "docs" / "metrics.md").read_text()
PROGRAMS = ("Gateway", "Controller", "Sidecar", "Node agent")

# Of a family: its type and its labels.
Families = dict[str, tuple[str, frozenset[str]]]


def section(heading: str) -> str:
    text = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert text, f"docs/metrics.md has no section {heading}"
    return text


def rows(heading: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    lines = [line for line in section(heading).splitlines() if line.startswith("|")][2:]
    return [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines
    ]


def documented(program: str) -> Families:
    return {
        name.strip("`"): (kind, frozenset(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels, _ in rows(program)
    }


def values_of(program: str, label: str) -> set[str]:
    """The words in backquotes that the rows with this label have in their last cell."""
    meanings = [cells[3] for cells in rows(program) if f"`{label}`" in cells[2]]
    return {word for meaning in meanings for word in re.findall(r"`(\w+)`", meaning)}


def printed(text: str) -> dict[str, tuple[str, dict[str, set[str]]]]:
    """By family: its type, and the values of each label that a sample has. Times of creation are left out."""
    found: dict[str, tuple[str, dict[str, set[str]]]] = {}
    for family in text_string_to_metric_families(text):
        if family.type == "gauge" and family.name.endswith("_created"):
            continue
        values: dict[str, set[str]] = {}
        for sample in family.samples:
            for label, value in sample.labels.items():
                if label != "le":
                    values.setdefault(label, set()).add(value)
        found[family.name] = (family.type, values)
    return found


def check(program: str, text: str) -> None:
    """Fails where page and program differ: a family, its type, a label, or a label's value that has no word."""
    page, real = documented(program), printed(text)
    assert {name: kind for name, (kind, _) in page.items()} == {
        name: kind for name, (kind, _) in real.items()
    }
    for name, (_, values) in real.items():
        assert values.keys() <= page[name][1], name
        for label, seen in values.items():
            # Pools have names of their own, verdicts their page, and classes of status are told as a range.
            if label not in ("pool", "verdict", "code"):
                assert seen <= values_of(program, label), (name, label)


def queries() -> list[str]:
    """Every query of the page's table."""
    return [cells[1].strip("`") for cells in rows("Questions and their queries")]
