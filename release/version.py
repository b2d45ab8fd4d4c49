"""Reads, checks and writes the version of the tree, which packages, code, chart and a page state."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from packaging.version import Version

from release.errors import ReleaseError

# A semantic version that Python's packages can have, too. An image's tag cannot have build metadata.
_VERSION = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-(alpha|beta|rc)\.(0|[1-9][0-9]*))?\Z"
)
_STATED = {
    "pyproject.toml": r'^version = "(.*)"$',
    "*/pyproject.toml": r'^version = "(.*)"$',
    "*/src/*/__init__.py": r'^__version__ = "(.*)"$',
    "*/src/*/_version.py": r'^__version__ = "(.*)"$',
    "charts/*/Chart.yaml": r"^(?:version|appVersion): (.*)$",
    "docs/install.md": r"(?:/\$name:|dist/|sandlot\[cli\]==)([0-9][0-9a-z.-]*)",
}


def checked(text: str) -> str:
    """Return the version. Raises ReleaseError."""
    if not text:
        raise ReleaseError("VERSION is missing; write, for example, VERSION=1.2.3")
    if _VERSION.match(text) is None:
        raise ReleaseError(
            f"VERSION={text} is no semantic version that images and Python's packages can have; "
            "write MAJOR.MINOR.PATCH, maybe with -alpha.N, -beta.N or -rc.N"
        )
    return text


def of_python(version: str) -> str:
    """Return the version as Python's packages write it: `1.2.3rc1` for `1.2.3-rc.1`."""
    return str(Version(version))


def _statements(root: Path) -> Iterator[tuple[Path, re.Pattern[str]]]:
    for glob, pattern in _STATED.items():
        for path in sorted(root.glob(glob)):
            compiled = re.compile(pattern, re.MULTILINE)
            if compiled.search(path.read_text()):
                yield path, compiled


def check_tree(root: Path, version: str) -> None:
    """Check that the whole tree has the version. Raises ReleaseError."""
    wrong = [
        f"{path.relative_to(root)} ({stated[1]})"
        for path, pattern in _statements(root)
        for stated in pattern.finditer(path.read_text())
        if stated[1] != version
    ]
    if wrong:
        raise ReleaseError(
            f"the tree has another version than {version}: {', '.join(wrong)}; "
            f"run `make version VERSION={version}` and commit what it writes"
        )


def write(root: Path, version: str) -> list[Path]:
    """Write the version wherever the tree states it and return the changed files."""
    changed: list[Path] = []
    for path, pattern in _statements(root):
        old = path.read_text()
        new = pattern.sub(lambda found: found[0].replace(found[1], version), old)
        if new != old:
            path.write_text(new)
            changed.append(path)
    return changed
