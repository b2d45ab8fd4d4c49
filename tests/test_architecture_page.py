"""docs/architecture.md: the functions that it leads a reader through are there, under these names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "contract": "sandlot_contract",
    "gateway": "sandlot_gateway",
    "sidecar": "sandlot_sidecar",
    "sdk": "sandlot",
}


def names(file: Path) -> set[str]:
    """Of functions, and of methods with their class."""
    tree = ast.parse(file.read_text())
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for one in tree.body:
        if isinstance(one, ast.ClassDef):
            methods = [node for node in one.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
            found |= {f"{one.name}.{method.name}" for method in methods}
    return found


def test_every_function_that_it_names_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    steps = re.findall(r"`(contract|gateway|sidecar|sdk) (\S+\.py) (\S+)`", text)
    assert len(steps) > 20
    missing = []
    for package, path, name in steps:
        file = ROOT / package / "src" / PACKAGES[package] / path
        if not file.is_file() or name not in names(file):
            missing.append(f"{package} {path} {name}")
    assert missing == []
