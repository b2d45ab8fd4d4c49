"""docs/control-api.md has every route with its errors, every field and verdict; docs/gateway-settings.md every setting."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, cast

from sandlot_gateway.control.api import control_api
from sandlot_gateway.control.models import CreateRequest, SandboxResponse
from sandlot_gateway.settings import Settings
from sandlot_gateway.verdict_reports import ENDINGS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "control-api.md").read_text()


def rows(heading: str, table: int = 0) -> list[list[str]]:
    """The cells of one table below a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return cells(section)[table]


def cells(text: str) -> list[list[list[str]]]:
    """Of each table, without its head."""
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
        for table in tables
    ]


def names(heading: str, table: int = 0) -> list[str]:
    return [row[0].strip("`") for row in rows(heading, table)]


def test_every_route_with_its_errors() -> None:
    documented = {row[0].strip("`"): set(row[3].split()) for row in rows("Routes")}
    served = {
        f"{method.upper()} {path}": {status for status in operation["responses"] if status >= "300"}
        for path, methods in control_api(cast(Any, None)).openapi()["paths"].items()
        for method, operation in methods.items()
    }
    assert documented == served
    known = set(names("Errors"))
    assert set().union(*served.values()) <= known


def test_every_route_and_field_is_marked_as_primes_or_ours() -> None:
    for heading in ("Routes", "Create: request", "Sandbox"):
        assert {row[1] for row in rows(heading)} == {"P", "S"}


def test_every_field_of_the_request_and_the_sandbox() -> None:
    assert names("Create: request") == list(CreateRequest.model_fields)
    assert names("Sandbox") == list(SandboxResponse.model_fields)


def test_every_verdict() -> None:
    documented = {row[0].strip("`"): row[1:] for row in rows("Sandbox", 1) if row[0] != "`exited`"}
    known = {name: [end.status, end.error_type or "", end.reason] for name, end in ENDINGS.items()}
    assert documented == known


def test_every_setting() -> None:
    (table,) = cells((DOCS / "gateway-settings.md").read_text())
    assert [row[0].strip("`") for row in table] == list(Settings.model_fields)


def test_every_failure_is_shown_by_tests_that_exist() -> None:
    root = Path(__file__).parents[2]
    page = (DOCS / "failures.md").read_text()
    tables = re.findall(
        r"(?:^\|.*\n)+", page.partition("\n## What each interface reports\n")[0], re.MULTILINE
    )
    assert len(tables) == 4  # one machine, Kubernetes, the node agent, creates in slots
    missing = []
    for line in [line for table in tables for line in table.splitlines()[2:]]:
        tests = re.findall(r"`(tests/[^`]+)`", line.rstrip("|").rpartition("|")[2])
        missing += [] if tests else [line]
        for path, _, name in (test.partition("::") for test in tests):
            file = root / path
            if not file.is_file() or name not in functions(file):
                missing.append(f"{path}::{name}")
    assert missing == []


def functions(file: Path) -> set[str]:
    """The names of a module's test functions."""
    body = ast.parse(file.read_text()).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
