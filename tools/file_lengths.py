"""Fails if a tracked Python file that is not generated has more than 300 lines: it has a second idea, for another file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST = 300
GENERATED = ("do not change it", "DO NOT EDIT")  # in a comment or docstring among the first lines
EXCEPTIONS: dict[str, str] = {}  # path -> why it has to be one file


def is_generated(text: str) -> bool:
    first = [line for line in text.splitlines()[:12] if line.startswith(("#", '"""'))]
    return any(mark in line for line in first for mark in GENERATED)


def lengths(root: Path) -> dict[str, int]:
    """Return the lines of each tracked Python file below `root` that is not generated."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "*.py"], cwd=root, capture_output=True, check=True
    ).stdout.decode()
    texts = {
        name: (root / name).read_text() for name in names.split("\0") if name and (root / name).is_file()
    }
    return {name: len(text.splitlines()) for name, text in texts.items() if not is_generated(text)}


def main(root: Path = ROOT, exceptions: Mapping[str, str] = EXCEPTIONS) -> int:
    found = lengths(root)
    faults = [
        f"{name}: has {lines} lines, and {MOST} at most are allowed: give its second idea a file of its own"
        for name, lines in found.items()
        if lines > MOST and name not in exceptions
    ]
    faults += [
        f"{name}: is no exception any more: remove it from tools/file_lengths.py"
        for name in exceptions
        if found.get(name, 0) <= MOST
    ]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
