"""Every candidate of the demo does what its kind says when it is run in a plain process."""

from __future__ import annotations

import ast

import pytest
from sandlot_grade.candidates import CANONICAL, KINDS, Candidate, candidates
from sandlot_grade.errors import GradeError
from sandlot_grade.mutants import chosen_mutant
from sandlot_grade.problems import Problem, humaneval
from sandlot_grade.program import build

from tests.grade.plain import Plain, PlainRun, plain


def _run(candidate: Candidate, by: Plain) -> PlainRun:
    problem = candidate.problem
    return by.run(build(code=candidate.code, test=problem.test, entry_point=problem.entry_point))


def test_humaneval_is_whole() -> None:
    problems = humaneval()
    assert list(problems) == [f"HumanEval/{number}" for number in range(164)]
    assert all(problem.canonical_solution for problem in problems.values())


def test_every_problem_has_every_family() -> None:
    made = list(candidates(humaneval().values()))
    families = {problem: [] for problem in humaneval()}
    for candidate in made:
        families[candidate.problem.task_id].append(candidate.kind.family)
    for task_id, kinds in families.items():
        assert kinds.count("right") == 1, task_id
        assert kinds.count("wrong") == 3, task_id
        assert kinds.count("hostile") >= 4, task_id
    assert {candidate.kind for candidate in made} == set(KINDS)
    assert 1_000 <= len(made) <= 1_500


def test_only_the_syntax_errors_do_not_parse() -> None:
    for candidate in candidates(humaneval().values()):
        if candidate.kind.name == "syntax error":
            with pytest.raises(SyntaxError):
                ast.parse(candidate.code)
        else:
            ast.parse(candidate.code)


def test_a_problem_of_the_same_name_but_other_code_is_refused() -> None:
    other = Problem(
        task_id="HumanEval/0",
        prompt="def f():\n",
        entry_point="f",
        test="def check(c):\n    pass\n",
        canonical_solution="    pass\n",
    )
    with pytest.raises(GradeError, match="HumanEval/0"):
        chosen_mutant(other)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_right_ones_pass_and_wrong_ones_fail_without_a_sandbox() -> None:
    made = [candidate for candidate in candidates(humaneval().values()) if candidate.kind.family != "hostile"]
    with plain() as interpreter:
        runs = [_run(candidate, interpreter) for candidate in made]
    failures = [
        f"{candidate.problem.task_id} {candidate.kind.name}: {run}"
        for candidate, run in zip(made, runs, strict=True)
        if run.timed_out or run.passed is not (candidate.kind is CANONICAL)
    ]
    assert failures == []
    assert sum(run.passed for run in runs) == 164


def test_leaving_early_with_success_is_no_pass() -> None:
    quitter = next(c for c in candidates(humaneval().values()) if c.kind.name == "quits early")
    with plain() as interpreter:
        run = _run(quitter, interpreter)
    assert run.exit_code == 0
    assert not run.passed
