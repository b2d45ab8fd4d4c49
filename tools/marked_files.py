"""`python tools/marked_files.py MARK...`: the test files that may have a test with one of the marks, for tools/test.sh.

Each parallel worker imports all files that it is given, so a run of few tests gets few files. A file is named when it or
a conftest.py above it has the mark, or when it says the name of a list of marks that a module of the tests has it in.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def marked_files(marks: set[str], root: Path = ROOT) -> list[Path]:
    """Return the files below `root`/tests, sorted."""
    mark = re.compile(rf"\bmark\.(?:{'|'.join(map(re.escape, sorted(marks)))})\b")
    texts = {path: path.read_text() for path in sorted((root / "tests").rglob("*.py"))}
    names = set[str]()
    for path, text in texts.items():
        if not path.name.startswith("test_"):
            # What is assigned ends before the next line that is not indented.
            assigned = re.findall(r"^(\w+)\b[^\n=]* = (.*(?:\n[ )\]}].*|\n(?=\n* ))*)", text, re.MULTILINE)
            names |= {name for name, value in assigned if mark.search(value)}
    named = re.compile("|".join([mark.pattern, *(rf"\b{name}\b" for name in sorted(names))]))
    marking = {
        path.parent for path, text in texts.items() if path.name == "conftest.py" and mark.search(text)
    }
    return [
        path
        for path, text in texts.items()
        if path.name.startswith("test_") and (named.search(text) or not marking.isdisjoint(path.parents))
    ]


if __name__ == "__main__":
    for found in marked_files(set(sys.argv[1:])):
        print(found.relative_to(ROOT))
