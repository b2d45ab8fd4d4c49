"""Generates the demo's candidates for each problem: the right solution, wrong ones, and hostile ones."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from sandlot_grade import hostile
from sandlot_grade.mutants import canonical_code, chosen_mutant
from sandlot_grade.problems import Problem

Family = Literal["right", "wrong", "hostile"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of candidate, and how its run must end: `result` is the expected grade."""

    name: str
    family: Family
    result: str
    every: int = 1  # for every n-th problem


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program for one problem, without its tests."""

    problem: Problem
    kind: Kind
    code: str


CANONICAL = Kind("canonical", "right", "passed")
MUTATED = Kind("mutated operator", "wrong", "failed")
# Every problem gets two of these five in turn, in addition to its mutant.
WRONG_BODIES = {
    Kind("returns None", "wrong", "failed"): "\n    return None\n",
    Kind("returns constant", "wrong", "failed"): "\n    return 'sandlot'\n",
    Kind("raises", "wrong", "failed"): "\n    raise NotImplementedError\n",
    Kind("syntax error", "wrong", "failed"): "\n    return (\n",
    Kind("quits early", "wrong", "failed"): "\n    import os\n    os._exit(0)\n",
}
LOOP = Kind("endless loop", "hostile", "timeout")
HOSTILE_BODIES = {
    LOOP: hostile.ENDLESS_LOOP,
    Kind("eats memory", "hostile", "oom"): hostile.EATS_MEMORY,
    Kind("writes 100 MB", "hostile", "output_limit"): hostile.WRITES_100_MB,
    Kind("kills all", "hostile", "signaled"): hostile.KILLS_ALL,
    Kind("fork bomb", "hostile", "pids_limit", every=8): hostile.FORK_BOMB,
    Kind("fills disk", "hostile", "disk_full", every=8): hostile.FILLS_DISK,
}
KINDS = (CANONICAL, MUTATED, *WRONG_BODIES, *HOSTILE_BODIES)


def candidates(problems: Iterable[Problem]) -> Iterator[Candidate]:
    """Yield all candidates, grouped by problem. Raises GradeError for a problem without a canonical solution."""
    bodies = list(WRONG_BODIES.items())
    for index, problem in enumerate(problems):
        yield Candidate(problem, CANONICAL, canonical_code(problem))
        mutant = chosen_mutant(problem)
        if mutant is not None:
            yield Candidate(problem, MUTATED, mutant)
        for turn in (2 * index, 2 * index + 1):
            kind, body = bodies[turn % len(bodies)]
            yield Candidate(problem, kind, _with_body(problem, body))
        for kind, body in HOSTILE_BODIES.items():
            if index % kind.every == 0:
                yield Candidate(problem, kind, _with_body(problem, body))


def _with_body(problem: Problem, body: str) -> str:
    """Return the prompt, then a second definition of the entry point with `body`, which is indented by four."""
    assert textwrap.dedent(body) != body, "the body must be indented"
    return f"{problem.prompt}\n    pass\n\n\ndef {problem.entry_point}(*args, **kwargs):{body}"
