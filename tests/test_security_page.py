"""docs/security.md: every line of its tables is shown by tests that exist, and every attack of reuse is listed."""

from __future__ import annotations

import re
from pathlib import Path

from tests.gateway.test_docs import functions
from tests.sidecar.leftover_files import FILES
from tests.sidecar.leftover_kernel import OBJECTS, SETTINGS
from tests.sidecar.leftover_network import CHANGES, SOCKETS
from tests.sidecar.leftover_processes import PROCESSES

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


def test_every_attack_on_the_next_owner_is_listed() -> None:
    section = (ROOT / "docs" / "security.md").read_text().partition("\n## Reuse\n")[2].partition("\n## ")[0]
    cells = [line.split(" | ")[1] for line in section.splitlines() if line.startswith("| ")]
    listed = {name.strip() for cell in cells for name in cell.split(";")}
    assert set(FILES | PROCESSES | SOCKETS | CHANGES | OBJECTS | SETTINGS) - listed == set()
