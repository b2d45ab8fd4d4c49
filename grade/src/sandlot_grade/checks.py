"""Analyses a test's `check`: whether the test defines it at module level, and calls it itself."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

# For a test that this Python cannot parse, since the image's may be newer. An indented `check` counts, too: a call that
# fails is better than no call, with which the program would pass untested.
_DEFINES = re.compile(r"^\s*(async\s+)?def\s+check\s*[\[(]", re.MULTILINE)
_CALLS = re.compile(r"^(?:assert\b.*\b)?check\s*\(", re.MULTILINE)

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LOOPS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True)
class Check:
    """The analysis: `kind` of call, `called` by the test itself, `problem`: why the test tests nothing."""

    kind: Literal["none", "plain", "async"] = "none"
    called: bool = False
    problem: str | None = None


@lru_cache(1024)  # all samples of a problem have the same test
def check_of(test: str) -> Check:
    """Analyse what `test` does with `check`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as those for escapes in the user's strings
            tree = ast.parse(test)
    except IndentationError as error:
        if str(error.msg).startswith("unexpected indent") and _indented(test):
            return Check(
                problem="its first line is indented, so it would become part of the code; start it at column 1"
            )
        return _by_text(test)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _by_text(test)
    own = [node for node in _scope(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    found = [node for node in own if node.name == "check"]
    if not found:
        inner = any(
            isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == "check"
            for node in ast.walk(tree)
        )
        if inner and not _does_something(tree):
            return Check(
                problem="it defines check inside a class or function, where it is not called; define it at module level"
            )
        return Check()
    if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for check in found for node in _scope(check)):
        return Check(problem="its check contains a yield, so a call does not run it; remove the yield")
    is_async = any(isinstance(node, ast.AsyncFunctionDef) for node in found)
    return Check("async" if is_async else "plain", called=_calls(tree, is_async=is_async))


def _indented(test: str) -> bool:
    first = next(
        (line for line in test.splitlines() if line.strip() and not line.lstrip().startswith("#")), ""
    )
    return first[:1] in (" ", "\t")


def _by_text(test: str) -> Check:
    found = _DEFINES.search(test)
    if found is None:
        return Check()
    return Check("async" if found[1] else "plain", called=not found[1] and _CALLS.search(test) is not None)


def _scope(top: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run with `top` itself, without those inside further functions and classes."""
    for node in ast.iter_child_nodes(top):
        yield node
        if not isinstance(node, _SCOPES):
            yield from _scope(node)


def _does_something(tree: ast.Module) -> bool:
    return any(isinstance(node, (ast.Call, ast.Assert, ast.Raise)) for node in _scope(tree))


def _calls(tree: ast.Module, *, is_async: bool) -> bool:
    """Return whether a top-level statement calls it: one inside a block may never be reached."""
    for statement in tree.body:
        if not isinstance(statement, (ast.Expr, ast.Assert, ast.Assign)):
            continue
        for node in _unconditional(statement):
            if not isinstance(node, ast.Call):
                continue
            # Calling an async function does not run it: the result must be passed to something that does.
            calls = [node] if not is_async else [arg for arg in node.args if isinstance(arg, ast.Call)]
            if any(isinstance(call.func, ast.Name) and call.func.id == "check" for call in calls):
                return True
    return False


def _unconditional(top: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(top):
        if not isinstance(node, (*_SCOPES, *_LOOPS)):
            yield node
            yield from _unconditional(node)
