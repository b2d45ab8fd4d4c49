"""Finds the error texts in source files: those raised, returned to a client or printed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TypeGuard

# Calls that make an error response or print an error line, without an exception.
ANSWERS = {"error_response", "BadParameter"}
# Functions that return only the text.
TEXTS = {"refusal", "images_refusal"}
LOGGERS = {"_log", "log", "logger", "logging"}
# Tables by status without error texts: HTTP reason phrases, and descriptions in the OpenAPI document.
PHRASES = {"REASONS", "_DESCRIPTIONS"}
DOCUMENT_KEYS = {"message", "detail"}
CODE = re.compile(r"[a-z]+(_[a-z]+)*")


@dataclass(frozen=True, order=True)
class Found:
    """One text; `answer` is its status and code, `kind` the class or function that it is passed to."""

    module: str
    text: str
    kind: str
    answer: str


@dataclass
class Names:
    """The classes, functions and constants of all modules, by name."""

    errors: set[str] = field(default_factory=lambda: {"Exception", "OSError", "ValueError", "RuntimeError"})
    factories: set[str] = field(default_factory=set)
    constants: dict[str, list[ast.expr]] = field(default_factory=dict)

    def learn(self, trees: Sequence[ast.Module]) -> None:
        classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        while new := {c.name for c in classes if self._is_error(c)} - self.errors:
            self.errors |= new
        for tree in trees:
            self.factories |= {node.name for node in ast.walk(tree) if self._returns_error(node)}
            for name, value in assignments(tree.body):
                if name.isupper() or name.startswith("_"):
                    self.constants.setdefault(name, []).append(value)

    def _returns_error(self, node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.returns is None:
            return False
        return any(isinstance(each, ast.Name) and each.id in self.errors for each in ast.walk(node.returns))

    def _is_error(self, node: ast.ClassDef) -> bool:
        return any(
            isinstance(base, ast.Name | ast.Attribute) and last(base) in self.errors for base in node.bases
        )


def assignments(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


def last(node: ast.expr) -> str:
    """Return the last part of a dotted name, or an empty string."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def collect(sources: Mapping[str, str]) -> list[Found]:
    """Collect the error texts, sorted and unique; `sources` maps module names to their text."""
    trees = {module: ast.parse(text) for module, text in sources.items()}
    names = Names()
    names.learn(list(trees.values()))
    return sorted({found for module, tree in trees.items() for found in _Module(module, tree, names).find()})


def read(root: Path, packages: Mapping[str, str]) -> dict[str, str]:
    """Return the modules below each package's folder, without generated ones."""
    sources = {}
    for package, folder in packages.items():
        for path in sorted((root / folder).rglob("*.py")):
            name = path.relative_to(root / folder).as_posix()
            if not {"_sync", "generated"} & set(path.parts) and not path.stem.endswith("_sync"):
                sources[f"{package} {name}"] = path.read_text()
    return sources


class _Module:
    def __init__(self, module: str, tree: ast.Module, names: Names) -> None:
        self._module = module
        self._tree = tree
        self._names = names
        self._here = dict[str, list[ast.expr]]()
        for name, value in assignments(tree.body):
            self._here.setdefault(name, []).append(value)

    def find(self) -> Iterator[Found]:
        yield from self._status_texts()
        yield from self._visit(self._tree, {})

    def _visit(self, node: ast.AST, local: dict[str, list[ast.expr]]) -> Iterator[Found]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            local = dict(local)
            for each in ast.walk(node):
                for name, value in assignments([each]) if isinstance(each, ast.stmt) else ():
                    local.setdefault(name, []).append(value)
            if node.name in TEXTS:
                returned = [
                    each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value
                ]
                yield from self._found(node.name, "", returned, local)
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from self._call(node.exc, local)
        elif isinstance(node, ast.Call) and self._is_error(node):
            yield from self._call(node, local)
        elif isinstance(node, ast.Dict):
            values = [v for k, v in zip(node.keys, node.values, strict=True) if _constant(k) in DOCUMENT_KEYS]
            yield from self._found("answer", "", values, local)
        for child in ast.iter_child_nodes(node):
            yield from self._visit(child, local)

    def _is_error(self, node: ast.Call) -> bool:
        name = last(node.func)
        if name in ("print", "write") and "sys.stderr" in ast.unparse(node):
            return True
        if isinstance(node.func, ast.Attribute) and last(node.func.value) in LOGGERS:
            return False
        return name in self._names.errors | self._names.factories | ANSWERS

    def _call(self, node: ast.Call, local: dict[str, list[ast.expr]]) -> Iterator[Found]:
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        constants = [_constant(value) for value in given]
        statuses = [str(value) for value in constants if type(value) is int and 400 <= value < 600]
        codes = [value for value in constants[:2] if isinstance(value, str) and CODE.fullmatch(value)]
        name = last(node.func)
        kind = "standard error" if name in ("print", "write") else name
        yield from self._found(kind, " ".join([*statuses[:1], *codes[:1]]), given, local)

    def _found(
        self, kind: str, answer: str, values: Sequence[ast.expr], local: dict[str, list[ast.expr]]
    ) -> Iterator[Found]:
        for value in values:
            for text in self._texts(value, local):
                words = re.sub(r"\{[^}]*\}", "", text)
                # Skip codes and names, and texts that only pass on another text.
                if re.search(r"[A-Za-z]+\W+[A-Za-z]", words) and " " in words.strip():
                    yield Found(self._module, " ".join(text.split()), kind, answer)

    def _status_texts(self) -> Iterator[Found]:
        """Yield the texts in tables by status."""
        for name, values in self._here.items():
            for value in values:
                if name in PHRASES or not isinstance(value, ast.Dict):
                    continue
                for key, text in zip(value.keys, value.values, strict=True):
                    status = _constant(key)
                    if type(status) is int and 400 <= status < 600:
                        yield from self._found("answer", str(status), [text], {})

    def _texts(
        self, node: ast.expr, local: dict[str, list[ast.expr]], seen: frozenset[str] = frozenset()
    ) -> list[str]:
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.Constant(value=bytes(text)):
                return [text.decode("latin-1")]
            case ast.JoinedStr(values=parts):
                return ["".join(map(self._part, parts))]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                sides = [self._texts(side, local, seen) or ["{…}"] for side in (left, right)]
                return ["".join(pair) for pair in product(*sides)]
            case ast.IfExp(body=body, orelse=orelse):
                return self._texts(body, local, seen) + self._texts(orelse, local, seen)
            case ast.BoolOp(values=values):
                return [text for value in values for text in self._texts(value, local, seen)]
            case ast.Subscript(value=value):
                return self._texts(value, local, seen)
            case ast.Dict(values=values):
                return [text for value in values for text in self._texts(value, local, seen)]
            case ast.Call(func=ast.Attribute(value=value, attr="format")):
                return self._texts(value, local, seen)
            case ast.Name(id=name) if name not in seen:
                meant = local.get(name) or self._here.get(name) or self._names.constants.get(name, [])
                return [text for value in meant for text in self._texts(value, local, seen | {name})]
        return []

    def _part(self, part: ast.expr) -> str:
        if isinstance(part, ast.Constant):
            return str(part.value)
        assert isinstance(part, ast.FormattedValue)
        texts = self._texts(part.value, {}) if isinstance(part.value, ast.Name) else []
        if len(texts) == 1:
            return texts[0]
        source = ast.unparse(part.value)
        return "{" + (source if re.fullmatch(r"[\w.]{1,30}", source) else "…") + "}"


def _constant(node: ast.expr | None) -> object:
    """Return a literal's text, or the member's name for an enum of codes."""
    if isinstance(node, ast.Attribute) and last(node.value).endswith("Code"):
        return node.attr.lower()
    return node.value if isinstance(node, ast.Constant) else None
