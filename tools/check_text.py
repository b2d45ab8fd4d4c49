"""Fails if a tracked file contains a machine path, a package registry's host, or a marker of unfinished work."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

UNDONE = "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X:"))
FORBIDDEN = (
    (
        re.compile(r"https?://[^\s\"')]*(pypi|pythonhosted|registry\.npmjs|proxy\.golang|crates\.io)"),
        "names a registry's host",
    ),
    (re.compile(r"(?<![\w.])/(root|home/\w+)/\.(pyenv|cache)"), "names a path of one machine"),
    (re.compile(rf"\b({UNDONE})\b"), "leaves work undone"),
)


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    names = (
        subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True)
        .stdout.decode()
        .split("\0")
    )
    faults = 0
    for name in filter(None, names):
        path = root / name
        if not path.is_file():
            continue
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, start=1):
            for pattern, fault in FORBIDDEN:
                if pattern.search(line):
                    print(f"{name}:{number}: {fault}: {line.strip()[:100]}")
                    faults += 1
        if path.suffix == ".py" and lines and path.name not in ("__init__.py", "conftest.py"):
            first = next((line for line in lines if line and not line.startswith("#")), "")
            if not first.startswith(('"""', 'r"""')):
                print(f"{name}:1: has no sentence at its top that says what it is for")
                faults += 1
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
