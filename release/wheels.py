"""Builds wheels and source distributions of all packages."""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from pathlib import Path

from images.rootfs import run
from release.errors import ReleaseError
from release.version import of_python


def packages(root: Path) -> list[str]:
    """Return the directories of the packages, which the workspace lists."""
    workspace = tomllib.loads((root / "pyproject.toml").read_text())
    return list(workspace["tool"]["uv"]["workspace"]["members"])


def _pinned(text: str, *, version: str) -> str:
    """Return a pyproject.toml whose package requires ours in its own version, since they are released together."""
    project = tomllib.loads(text)["project"]
    lists: list[list[str]] = [project["dependencies"], *project.get("optional-dependencies", {}).values()]
    head, begin, rest = text.partition("\ndependencies = ")
    for each in {each for one in lists for each in one if each.startswith("sandlot")}:
        rest = rest.replace(f'"{each}"', f'"{each}=={of_python(version)}"')
    return head + begin + rest


def build(source: Path, out: Path, *, version: str, epoch: int) -> list[Path]:
    """Build from a copy of the tree, in which each package gets the license and pins. Raises ReleaseError."""
    out.mkdir(parents=True)
    # Hatchling looks for a .gitignore up to here; further up it would add that of whatever tree the copy is in.
    (source / ".git").mkdir()
    for package in packages(source):
        shutil.copy2(source / "LICENSE", source / package / "LICENSE")
        settings = source / package / "pyproject.toml"
        settings.write_text(_pinned(settings.read_text(), version=version))
        os.utime(settings, (epoch, epoch))
        run(
            [sys.executable, "-m", "hatchling", "build", "-d", out, "-t", "sdist", "-t", "wheel"],
            cwd=source / package,
            env={"SOURCE_DATE_EPOCH": str(epoch)},
        )
    made = sorted(out.iterdir())
    strange = [path.name for path in made if f"-{of_python(version)}" not in path.name]
    if strange:
        raise ReleaseError(f"{', '.join(strange)}: built with another version than {version}")
    return made
