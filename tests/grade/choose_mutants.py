"""Writes `humaneval_mutants.json` again: for each problem a mutant that its tests refuse, quickly and every time.

python -m tests.grade.choose_mutants
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import sandlot_grade
from sandlot_grade.mutants import mutants
from sandlot_grade.problems import Problem, humaneval
from sandlot_grade.program import build

from tests.grade.plain import run_plain

TARGET = Path(sandlot_grade.__file__).parent / "humaneval_mutants.json"


def choose(problem: Problem) -> int | None:
    for number, code in enumerate(mutants(problem)):
        program = build(code=code, test=problem.test, entry_point=problem.entry_point)
        # Some tests draw random inputs: one refusal is no proof.
        runs = (run_plain(program, timeout=2.0) for _ in range(3))
        if all(not run.passed and not run.timed_out and "AssertionError" in run.stderr for run in runs):
            return number
    return None


def main() -> None:
    problems = humaneval()
    with ThreadPoolExecutor(2) as pool:
        numbers = pool.map(choose, problems.values())
        chosen = {
            task_id: number for task_id, number in zip(problems, numbers, strict=True) if number is not None
        }
    TARGET.write_text(json.dumps(chosen, indent=0) + "\n")
    print(f"{len(chosen)} of {len(problems)} problems have a mutant")


if __name__ == "__main__":
    main()
