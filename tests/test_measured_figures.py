"""The pages with measured figures: where one stands, its section or one around it has the run's date and its command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Here every figure is a measured one.
MEASUREMENTS = [
    "docs/performance.md",
    *sorted(f"docs/performance/{p.name}" for p in (ROOT / "docs/performance").glob("*.md")),
]
# Here those in tables are, but for tables of settings and calculations, whose sections are named.
OTHERS = {
    "README.md": (),
    "docs/console.md": (),
    "docs/dns.md": ("Records", "Without DNS", "CoreDNS under churn"),
    "docs/encryption.md": (),
    "docs/operate.md": (),
    "docs/pool-scaling.md": ("One writer per pool",),
    "docs/quotas.md": (),
    "docs/registry-cache.md": ("Failures",),
    "docs/sizing.md": (),
}
FIGURE = re.compile(
    r"\d(?: |\u00a0)?(?:ms|µs|s|MiB|KiB|GiB|MB|KB|kB|millicores|×|%)(?![\w-])|\d (?:cores|per second)|\d k?/s"
)
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")
COMMAND = re.compile(r"`[^`\n]*(?:\bmake [a-z]|\bpython -m |PROFILE=)[^`\n]*`")


@dataclass(frozen=True)
class Section:
    """`text` without the sections below it; `path` has the headings from the page's title on."""

    path: tuple[str, ...]
    text: str
    around: str  # with the texts of the sections around it

    @property
    def tables(self) -> str:
        return "\n".join(line for line in self.text.splitlines() if line.startswith("|"))


def sections(markdown: str) -> Iterator[Section]:
    """Split a page; headings in blocks of code are none."""
    texts: list[tuple[int, str, list[str]]] = []
    fenced = False
    for line in markdown.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        heading = None if fenced else re.match(r"(#+) (.+)", line)
        if heading:
            texts.append((len(heading[1]), heading[2], []))
        elif texts and not fenced:
            texts[-1][2].append(line)
    open_ones: list[tuple[int, str, str]] = []
    for level, title, lines in texts:
        open_ones = [each for each in open_ones if each[0] < level]
        open_ones.append((level, title, "\n".join(lines)))
        path = tuple(each[1] for each in open_ones)
        yield Section(path, "\n".join(lines), "\n".join(each[2] for each in open_ones))


def lacking(section: Section) -> list[str]:
    return [
        name for name, wanted in (("date", DATE), ("command", COMMAND)) if not wanted.search(section.around)
    ]


@pytest.mark.parametrize("page", MEASUREMENTS)
def test_measurements_have_their_date_and_command(page: str) -> None:
    found = list(sections((ROOT / page).read_text()))
    # The table at the top of a generated page is of the runs below it.
    figures = [each for each in found if FIGURE.search(each.text) and len(each.path) > 1]
    assert figures
    assert {each.path: lacking(each) for each in figures if lacking(each)} == {}


@pytest.mark.parametrize("page", OTHERS)
def test_tables_of_figures_have_their_date_and_command(page: str) -> None:
    found = {
        each.path[-1]: each for each in sections((ROOT / page).read_text()) if FIGURE.search(each.tables)
    }
    assert set(OTHERS[page]) <= set(found), "a section that is gone is still named here"
    assert {
        name: lacking(each) for name, each in found.items() if name not in OTHERS[page] and lacking(each)
    } == {}
