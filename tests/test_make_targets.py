"""Every `make TARGET` that the pages, CI, the workflows and the scripts name is in the Makefile, and its scripts exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = ROOT / "Makefile"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "AGENTS.md")]
SCRIPTS = [ROOT / ".ci/run", *sorted((ROOT / "tools").glob("*.sh"))]
VALUE = r"""(?:"[^"]*"|'[^']*'|\S*)"""
SET = rf"[A-Za-z_][A-Za-z0-9_]*={VALUE}"
# What may stand before `make`, and then its words up to what ends the command.
START = r"(?:^|run:|&&|;|\|\|?|\$|\(|!|\b(?:if|then|else|do))"
COMMAND = re.compile(
    rf"{START}\s*(?:(?:sudo|env|time|exec|-E|{SET})\s+)*make(?=\s)((?:\s+(?:{SET}|[\w./=-]+))*)"
)


def commands(markdown: str) -> Iterator[str]:
    """The code of a page: what stands in backquotes, and lines of blocks."""
    fenced = False
    for line in markdown.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced:
            yield line
        else:
            yield from re.findall(r"`([^`]+)`", line)


def named(path: Path) -> set[str]:
    """The targets that a file runs or tells the reader to run; other sentences with `make` are none."""
    text = path.read_text()
    if path.suffix == ".md":
        pieces = list(commands(text))
    else:
        in_comments = re.findall(r"`([^`\n]+)`", "\n".join(re.findall(r"^\s*#.*", text, re.MULTILINE)))
        pieces = [*re.sub(r"^\s*#.*", "", text, flags=re.MULTILINE).splitlines(), *in_comments]
    return {target for piece in pieces for target in run_by(piece)}


def run_by(line: str) -> Iterator[str]:
    """The targets of each `make` that a line of shell runs; its variables and options are none."""
    for words in COMMAND.findall(line.strip()):
        for word in re.sub(SET, "", words).split():
            if re.fullmatch(r"[a-z][a-z0-9-]*", word):
                yield word


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z0-9-]*):", MAKEFILE.read_text(), re.MULTILINE))


def test_targets_that_are_named_exist() -> None:
    texts_of_errors = ROOT / "docs/errors.md"  # sentences, in backquotes
    pages = [*PAGES, *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path != texts_of_errors)]
    files = [*pages, *SCRIPTS, *sorted((ROOT / ".github").rglob("*.yml"))]
    found = {path.relative_to(ROOT).as_posix(): named(path) for path in files}
    assert found[".ci/run"] >= {"check", "test", "test-cluster"}
    assert found["README.md"] >= {"demo"}
    known = targets()
    assert {name: missing for name, each in found.items() if (missing := each - known)} == {}


def test_a_release_is_tested_from_its_artifacts_before_it_is_published() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text()
    run = [target for line in text.splitlines() for target in run_by(line)]
    assert run == ["release", "release-check", "test-artifacts", "test-upgrade", "publish"]
    assert re.search(r"^ +fetch-depth: 0\b", text, re.MULTILINE), "there is nothing to upgrade from"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("make gone", ["gone"]),
        ("PAGE=x make gone", ["gone"]),
        ("SEED=n A='b c' make gone", ["gone"]),
        ("sudo make gone", ["gone"]),
        ("sudo -E make gone", ["gone"]),
        ("env A=1 make gone", ["gone"]),
        ("make check gone", ["check", "gone"]),
        ('make check ARGS="-k name" gone', ["check", "gone"]),
        ("cd x && make -j2 gone; make other", ["gone", "other"]),
        ("if make gone; then", ["gone"]),
        ("run: make gone", ["gone"]),
        ("make release VERSION=1.2.3  # make sure", ["release"]),
        ("make", []),
        ("remake gone", []),
        ("these make sense", []),
    ],
)
def test_what_a_line_runs(line: str, expected: list[str]) -> None:
    assert list(run_by(line)) == expected


def test_scripts_of_targets_exist() -> None:
    scripts = re.findall(r"\b((?:tools|loadtests|tests|images)/[\w/]+\.(?:sh|py))", MAKEFILE.read_text())
    assert len(scripts) > 10
    assert [name for name in scripts if not (ROOT / name).is_file()] == []
