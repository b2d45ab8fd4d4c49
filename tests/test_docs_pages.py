"""The pages of docs/: each says whom it is for, guides stay short, and the list of decisions has them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
GUIDE_WORDS = 1_500


def reader(page: Path) -> str:
    """What stands in italics below the title."""
    found = re.match(r"# .+\n\n\*(.+)\*\n", page.read_text())
    assert found is not None, f"{page.name} does not say below its title whom it is for"
    return found[1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_says_whom_it_is_for(page: Path) -> None:
    assert re.match(r"(Guide, |Reference, |)[Ff]or ", reader(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_that_is_no_reference_is_short(page: Path) -> None:
    if not reader(page).startswith("Reference, "):
        assert len(page.read_text().split()) <= GUIDE_WORDS


def test_the_list_of_decisions_has_them_all() -> None:
    listed = re.findall(r"\(([0-9][^)]+\.md)\)", (DOCS / "adr" / "index.md").read_text())
    assert listed == sorted(page.name for page in (DOCS / "adr").glob("[0-9]*.md"))


def test_the_list_of_load_test_folders_has_them_all() -> None:
    code = (DOCS / "benchmarks.md").read_text().split("\n## Code\n")[1]
    listed = re.findall(r"`(\w+)/`", "\n".join(re.findall(r"^\| (`\w+/`.*?) \|", code, re.MULTILINE)))
    files = (DOCS.parent / "loadtests").glob("*/*")
    assert sorted(listed) == sorted({file.parent.name for file in files if file.suffix in (".py", ".yaml")})
