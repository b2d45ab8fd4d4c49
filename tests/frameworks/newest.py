"""The newest release of a framework that a Python of this machine runs, and why that is not the newest of all."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.prime.environments import EnvironmentFailed, IndexUnreachable, at_hand, uv

# A Python for which each release is new enough: uv ignores upper bounds. Without --python it would download one.
ANY = ("--python", sys.executable, "--python-version", "3.99")


@dataclass(frozen=True)
class Runnable:
    """A release, and a Python of this machine that runs it: that of the tests, else the oldest."""

    release: Version
    python: Version
    interpreter: Path


def newest_runnable(package: str, *, lowest: str) -> Runnable:
    """The newest release of a package that a Python of this machine, of the version `lowest` or later, runs.

    Raises EnvironmentFailed, with what the newest release needs, if none does; IndexUnreachable.
    """
    found: list[Runnable] = []
    for python, interpreter in at_hand(lowest).items():
        try:
            release = _newest(package, ("--python", str(interpreter)))
        except IndexUnreachable:
            raise
        except EnvironmentFailed:  # no release for this Python
            continue
        found.append(Runnable(release, python, interpreter))
    if not found:
        release = _newest(package, ANY)
        needed = _pythons_of(package, release)
        raise EnvironmentFailed(
            f"{package}: the newest, {release}, needs Python {needed}, and this machine has none: install one"
        )
    return max(found, key=lambda each: each.release)  # the first of several


def described(package: str, installed: str, *, python: Version, lowest: str) -> str:
    """A release for the table: with its Python, if it does not run on `lowest`, and why it is not the newest of all.

    Raises EnvironmentFailed, IndexUnreachable.
    """
    notes: list[str] = []
    later = python.release[:2] != Version(lowest).release[:2]
    if later and lowest not in _pythons_of(package, Version(installed)):
        notes.append(f"with Python {python.major}.{python.minor}")
    newest = _newest(package, ANY)
    if newest > Version(installed):
        unmet = ",".join(str(each) for each in _pythons_of(package, newest) if python not in each)
        why = f"needs Python {unmet}" if unmet else "does not go with its requirements"
        notes.append(f"the newest, {newest}, {why}")
    return f"{package} {installed}" + (f" ({'; '.join(notes)})" if notes else "")


def _newest(package: str, where: Sequence[str]) -> Version:
    """The newest release for a Python, whatever it asks for."""
    with tempfile.TemporaryDirectory() as directory:
        asked = Path(directory) / "asked.txt"
        asked.write_text(f"{package}\n")
        words = ("--quiet", "--no-deps", "--no-header", "--no-annotate", *where)
        return Version(uv("pip", "compile", *words, str(asked)).strip().rpartition("==")[2])


def _pythons_of(package: str, release: Version) -> SpecifierSet:
    """The Pythons that a release runs on, as it says itself: `>=3.14`."""
    with tempfile.TemporaryDirectory() as directory:
        uv("pip", "install", "--quiet", "--no-deps", "--target", directory, *ANY, f"{package}=={release}")
        (metadata,) = Path(directory).glob("*.dist-info/METADATA")
        found = re.search(r"^Requires-Python: *(.+)$", metadata.read_text(), re.MULTILINE)
    return SpecifierSet(found[1] if found else "")
