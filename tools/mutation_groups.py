"""Reads the groups of mutation tests and the explained survivors, and finds what a rename left behind in them."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).parents[1]
GROUPS = ROOT / "tests" / "mutation.toml"
EXPLAINED = ROOT / "tests" / "mutation-survivors.toml"

# A change: the function, the lines before and the lines after.
Change = tuple[str, str, str]


@dataclass(frozen=True)
class Group:
    """Functions of one part, with the tests that must kill their mutants; paths relative to the repository."""

    name: str
    source: str
    files: list[str]
    functions: list[str]
    tests: list[str]
    arguments: list[str] = field(default_factory=list[str])

    def has(self, function: str) -> bool:
        """Return whether a pattern matches the end of this dotted name."""
        return any(_matches(function, pattern) for pattern in self.functions)


def read() -> dict[str, Group]:
    """Return the groups of tests/mutation.toml by name."""
    return {name: Group(name, **options) for name, options in tomllib.loads(GROUPS.read_text()).items()}


def explained() -> dict[Change, str]:
    """Return the reasons why no test can notice some changes."""
    entries = tomllib.loads(EXPLAINED.read_text()).get("survivor", [])
    return {
        (entry["function"], before, after): entry["why"]
        for entry in entries
        for before, after in entry["changes"]
    }


def check() -> list[str]:
    """Return what the two files name that does not exist."""
    groups = list(read().values())
    wrong = [problem for group in groups for problem in problems(group, ROOT)]
    # `unowned` reads the files, which `problems` has found to exist.
    return wrong or unowned([function for function, _, _ in explained()], groups, ROOT)


def problems(group: Group, root: Path) -> list[str]:
    """Return what the group names that does not exist."""
    paths = [*(f"{group.source}/{file}" for file in group.files), *group.tests]
    gone = [path for path in paths if not (root / path).is_file()]
    if gone:
        return [f"{group.name}: {path} does not exist; correct it in tests/mutation.toml" for path in gone]
    functions = _functions(group, root)
    return [
        f'{group.name}: "{pattern}" matches no function that mutmut changes in {", ".join(group.files)}, '
        "so it tests nothing; correct it in tests/mutation.toml, for example after a rename"
        for pattern in group.functions
        if not any(_matches(function, pattern) for function in functions)
    ]


def unowned(functions: Iterable[str], groups: list[Group], root: Path) -> list[str]:
    """Return which of these explained functions no group changes: no run would notice that they are gone."""
    changed = {name for group in groups for name in _functions(group, root) if group.has(name)}
    return [
        f"{function}: listed in tests/mutation-survivors.toml, and no group changes it; "
        "correct the name, or remove the entry"
        for function in dict.fromkeys(functions)
        if function not in changed
    ]


def _matches(function: str, pattern: str) -> bool:
    # Not within a word: "line.*" is not a pattern of "pipeline.join".
    return fnmatchcase(f".{function}", f"*.{pattern}")


def _functions(group: Group, root: Path) -> list[str]:
    """Return the dotted names of the functions of the group's files that mutmut can change."""
    return [
        name
        for file in group.files
        for name in _defined(
            ast.parse((root / group.source / file).read_text()),
            file.removesuffix(".py").replace("/", "."),
        )
    ]


def _defined(parent: ast.AST, prefix: str) -> Iterator[str]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.ClassDef):
            yield from _defined(node, f"{prefix}.{node.name}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_changed(node):
            yield f"{prefix}.{node.name}"


def _is_changed(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether mutmut changes the function: it leaves most decorated ones as they are."""
    return [ast.unparse(one) for one in function.decorator_list] in ([], ["staticmethod"], ["classmethod"])
