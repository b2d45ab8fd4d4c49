"""Release notes are the section of the version, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from release.errors import ReleaseError
from release.notes import cut

CHANGELOG = """# Changelog

*For users.*

## 1.1.0 (unreleased)

## 1.0.0 (2026-05-04)

### Parts

- One.

## 0.9.0

- The first.
"""


@pytest.fixture
def changelog(tmp_path: Path) -> Path:
    path = tmp_path / "CHANGELOG.md"
    path.write_text(CHANGELOG)
    return path


def test_a_section_is_cut_out(changelog: Path) -> None:
    assert cut(changelog, "1.0.0") == "# Sandlot 1.0.0\n\n### Parts\n\n- One.\n"
    assert cut(changelog, "0.9.0") == "# Sandlot 0.9.0\n\n- The first.\n"


def test_a_missing_and_an_empty_section_are_errors(changelog: Path) -> None:
    with pytest.raises(ReleaseError, match=r"no section `## 1\.0`, only 1\.1\.0, 1\.0\.0, 0\.9\.0"):
        cut(changelog, "1.0")
    with pytest.raises(ReleaseError, match=r"the section `## 1\.1\.0` is empty"):
        cut(changelog, "1.1.0")
