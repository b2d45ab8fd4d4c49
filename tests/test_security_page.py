"""docs/security.md: every line of its tables is shown by tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.gateway.test_docs import functions

ROOT = Path(__file__).parents[1]


def test_every_line_is_shown_by_tests_that_exist() -> None:
    tables = re.findall(r"(?:^\|.*\n)+", (ROOT / "docs" / "security.md").read_text(), re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()[2:]]
    assert len(lines) > 20
    missing = []
    for line in lines:
        tests = re.findall(r"`(tests/[^`]+)`", line.rstrip("|").rpartition("|")[2])
        missing += [] if tests else [line]
        for path, _, name in (test.partition("::") for test in tests):
            file = ROOT / path
            if not file.is_file() or name not in functions(file):
                missing.append(f"{path}::{name}")
    assert missing == []
