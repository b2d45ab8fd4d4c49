"""Reads a file of candidates: HumanEval's samples format, or lines with their own tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from sandlot_grade.checks import check_of
from sandlot_grade.errors import InputError
from sandlot_grade.jsonl import Record, read_records
from sandlot_grade.problems import Problem
from sandlot_grade.work import Rollout


def read_samples(
    path: Path, *, problems: Callable[[], Mapping[str, Problem]], first: int | None = None
) -> list[Rollout]:
    """Read the rollouts of a file, at most the `first` ones. Raises InputError with line and field.

    A line is `{"task_id", "completion"}` for one of `problems` (called only if a line needs it),
    or `{"test", "code" | "completion", "prompt"?, "entry_point"?, "task_id"?}`. `code` is a whole program,
    `completion` what follows the prompt. `kind`, a string, groups lines in the table.
    """
    known: Mapping[str, Problem] | None = None
    rollouts: list[Rollout] = []
    for record in read_records(path):
        if "test" in record.data:
            rollouts.append(_with_own_test(record, index=len(rollouts)))
        else:
            known = problems() if known is None else known
            rollouts.append(_of_problem(record, index=len(rollouts), problems=known))
        if len(rollouts) == first:
            break
    if not rollouts:
        raise InputError(
            "has no samples: each line must be an object with 'task_id' and 'completion' or 'code'", path=path
        )
    return rollouts


def _of_problem(record: Record, *, index: int, problems: Mapping[str, Problem]) -> Rollout:
    task_id = record.needed("task_id")
    problem = problems.get(task_id)
    if problem is None:
        raise record.error(
            f"{task_id!r} is not a problem of the set, and the line has no 'test'", field="task_id"
        )
    return Rollout(
        index=index,
        task_id=task_id,
        kind=record.text("kind", required=False) or "sample",
        code=_code(record, prompt=problem.prompt),
        test=problem.test,
        entry_point=problem.entry_point,
    )


def _with_own_test(record: Record, *, index: int) -> Rollout:
    entry_point = record.text("entry_point", required=False)
    if entry_point is not None and not entry_point.isidentifier():
        raise record.error(f"{entry_point!r} is not a Python name", field="entry_point")
    test = record.needed("test")
    check = check_of(test)
    if check.problem is not None:
        raise record.error(f"tests nothing: {check.problem}", field="test")
    if entry_point is None and check.kind != "none" and not check.called:
        message = "is missing: 'test' defines check and does not call it; name the function to pass to it"
        raise record.error(message, field="entry_point")
    return Rollout(
        index=index,
        task_id=record.text("task_id", required=False) or f"line {record.line}",
        kind=record.text("kind", required=False) or "sample",
        code=_code(record, prompt=record.text("prompt", required=False) or ""),
        test=test,
        entry_point=entry_point,
    )


def _code(record: Record, *, prompt: str) -> str:
    code = record.text("code", required=False)
    completion = record.text("completion", required=False)
    if code is not None and completion is not None:
        raise record.error("give either 'code' or 'completion', not both", field="code")
    if code is not None:
        return code
    if completion is None:
        raise record.error("is missing (or give 'code')", field="completion")
    return prompt + completion
