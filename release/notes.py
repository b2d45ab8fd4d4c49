"""Cuts the release notes of a version from the changelog."""

from __future__ import annotations

import re
from pathlib import Path

from release.errors import ReleaseError

_HEADING = re.compile(r"^## (\S+)(?: \(.*\))?\n", re.MULTILINE)


def cut(changelog: Path, version: str) -> str:
    """Return the section of a version, with a title. Raises ReleaseError."""
    text = changelog.read_text()
    headings = list(_HEADING.finditer(text))
    ends = [*(each.start() for each in headings[1:]), len(text)]
    sections = {each[1]: text[each.end() : end].strip() for each, end in zip(headings, ends, strict=True)}
    if version not in sections:
        raise ReleaseError(
            f"{changelog.name} has no section `## {version}`, only {', '.join(sections) or 'none'}; "
            "write what users see of this version"
        )
    if not sections[version]:
        raise ReleaseError(f"{changelog.name}: the section `## {version}` is empty; write what users see")
    return f"# Sandlot {version}\n\n{sections[version]}\n"
