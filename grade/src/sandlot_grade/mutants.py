"""Makes wrong solutions from right ones, by changing one operator or constant.

Some changes leave a program right, or make it loop; `humaneval_mutants.json` has, for each problem, the number of a
mutant that its tests reject at once.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files

from sandlot_grade.errors import GradeError
from sandlot_grade.problems import Problem

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}


def mutants(problem: Problem) -> Iterator[str]:
    """Yield every mutant of the canonical solution as a whole program, always in the same order."""
    source = canonical_code(problem)
    for number in range(len(_changes(ast.parse(source)))):
        tree = ast.parse(source)
        _changes(tree)[number]()
        yield ast.unparse(tree)


def chosen_mutant(problem: Problem) -> str | None:
    """Return the mutant that is known to be wrong, or None if none is known for this problem."""
    number = _chosen().get(problem.task_id)
    if number is None:
        return None
    for index, code in enumerate(mutants(problem)):
        if index == number:
            return code
    raise GradeError(f"{problem.task_id} differs from the problem that its mutant was chosen for")


def canonical_code(problem: Problem) -> str:
    """Return the prompt with its canonical solution. Raises GradeError if the problem has none."""
    if problem.canonical_solution is None:
        raise GradeError(f"{problem.task_id} has no canonical solution")
    return problem.prompt + problem.canonical_solution


@cache
def _chosen() -> dict[str, int]:
    return json.loads(files("sandlot_grade").joinpath("humaneval_mutants.json").read_text())


def _changes(tree: ast.Module) -> list[Callable[[], None]]:
    """Return a callable for each possible change, which applies it to `tree`."""
    changes: list[Callable[[], None]] = []
    for node in ast.walk(tree):
        match node:
            case ast.Compare(ops=operators):
                for index, operator in enumerate(operators):
                    changes.append(_replace_comparison(node, index=index, new=_COMPARE[type(operator)]()))
            case ast.BinOp(op=operator) if type(operator) in _BINARY:
                changes.append(_replace_operator(node, new=_BINARY[type(operator)]()))
            case ast.AugAssign(op=operator) if type(operator) in _BINARY:
                changes.append(_replace_operator(node, new=_BINARY[type(operator)]()))
            case ast.Constant(value=bool(value)):
                changes.append(_replace_constant(node, new=not value))
            case ast.Constant(value=int(value)):
                changes.append(_replace_constant(node, new=value + 1))
            case ast.Return(value=ast.expr() as value):
                changes.append(_replace_return(node, old=value))
            case _:
                pass
    return changes


def _replace_comparison(node: ast.Compare, *, index: int, new: ast.cmpop) -> Callable[[], None]:
    def change() -> None:
        node.ops[index] = new

    return change


def _replace_operator(node: ast.BinOp | ast.AugAssign, *, new: ast.operator) -> Callable[[], None]:
    def change() -> None:
        node.op = new

    return change


def _replace_constant(node: ast.Constant, *, new: bool | int) -> Callable[[], None]:
    def change() -> None:
        node.value = new

    return change


def _replace_return(node: ast.Return, *, old: ast.expr) -> Callable[[], None]:
    def change() -> None:
        # A tuple of the right answer is a wrong answer: the last resort, which applies to every solution.
        node.value = ast.Tuple(elts=[old], ctx=ast.Load())

    return change
