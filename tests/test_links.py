"""Every relative link of the Markdown pages leads to a file that is there, and to a heading that is in it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def pages() -> list[str]:
    """Of the working tree, also those that nobody has committed yet."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    names = (
        done.stdout.split()
        if done.returncode == 0
        else [str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*.md")]
    )
    return sorted(name for name in names if (ROOT / name).is_file())


def prose(page: Path) -> str:
    """Without what stands in fences."""
    return re.sub(r"^\s*```.*?^\s*```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {word.strip().replace(" ", "-") for word in words}


@pytest.mark.parametrize("name", pages())
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    broken = []
    for link in LINK.findall(re.sub(r"`[^`]*`", "", prose(page))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []
