"""Reads docs/e2b-methods.md: the methods of its table by state, and the share of them that works.

`python -m tests.frameworks.e2b_table` writes the page's figures anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "e2b-methods.md"
LANGUAGES = ("Python", "JavaScript")
_ROW = re.compile(r"^\| (.+?) \| (.+?) \| (works|differs|no|cloud) \|", re.MULTILINE)


@dataclass(frozen=True)
class Counted:
    language: str
    works: int
    missing: int
    cloud: int
    volumes: int

    @property
    def share(self) -> float:
        """Percent of the methods that need no service of E2B's cloud."""
        return 100 * self.works / (self.works + self.missing)

    @property
    def line(self) -> str:
        """The row of the page."""
        with_volumes = 100 * self.works / (self.works + self.missing + self.volumes)
        counts = f"{self.works} of {self.works + self.missing} | {self.share:.1f} %"
        return f"| {self.language} | {counts} | {self.cloud} | {with_volumes:.1f} % |"


def rows(language: str, *states: str) -> set[str]:
    """The names that the table has for a language, in these states, or in any."""
    cells = [(row[1 + LANGUAGES.index(language)], row[3]) for row in _ROW.finditer(PAGE.read_text())]
    return {
        name
        for cell, state in cells
        if not states or state in states
        for name in re.findall(r"`([A-Za-z.\d_]+)`", cell)
    }


def counted(language: str) -> Counted:
    cloud = rows(language, "cloud")
    return Counted(
        language=language,
        works=len(rows(language, "works", "differs")),
        missing=len(rows(language, "no")),
        cloud=len(cloud),
        volumes=sum(name.startswith("Volume.") for name in cloud),
    )


if __name__ == "__main__":
    text = PAGE.read_text()
    for each in LANGUAGES:
        text = re.sub(rf"^\| {each} \| \d.*$", counted(each).line, text, flags=re.MULTILINE)
    PAGE.write_text(text)
