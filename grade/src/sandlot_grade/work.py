"""One rollout: a program to grade, and what became of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from sandlot.errors import SandlotError

from sandlot_grade.program import Program, build


@dataclass(frozen=True, slots=True)
class Rollout:
    """A candidate with its tests. `index` is its place in the input; `kind` groups it in tables."""

    index: int
    task_id: str
    kind: str
    code: str
    test: str
    entry_point: str | None

    def program(self) -> Program:
        """The program with a marker of its own, new at each call."""
        return build(code=self.code, test=self.test, entry_point=self.entry_point)


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds, each step as the caller waited for it; `whole` spans create to delete of the last attempt.

    `started` is seconds since the first rollout of the run began.
    """

    started: float = 0.0
    create: float = 0.0
    write: float = 0.0
    exec: float = 0.0
    delete: float = 0.0
    whole: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a rollout ended.

    `result` is the grade: "passed", "failed" (the program ended by itself without passing), "output_limit" (it
    wrote more than is kept), any other verdict of the command ("timeout", "oom", "signaled", ...), or "lost": the
    infrastructure failed at every attempt, which says nothing about the code. `lost` lists why attempts failed.
    """

    index: int
    task_id: str
    kind: str
    key: str
    result: str
    verdict: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    message: str | None = None
    output_bytes: int = 0
    stderr_tail: str = ""
    cpu: float = 0.0
    peak_memory: int = 0
    queued: float = 0.0
    pool_hit: bool = False
    attempts: int = 1
    lost: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    timings: Timings = field(default_factory=Timings)

    @property
    def passed(self) -> bool:
        return self.result == "passed"

    def document(self) -> dict[str, Any]:
        """As a JSON object, with `passed`."""
        return {"passed": self.passed, **asdict(self)}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Outcome:
        """The opposite of `document`. Raises KeyError, TypeError or ValueError when it is something else."""
        names = cls.__dataclass_fields__
        values = {name: document[name] for name in names}
        values["timings"] = Timings(**values["timings"])
        values["lost"] = tuple(values["lost"])
        values["notes"] = tuple(values["notes"])
        return cls(**values)


class Stopped(SandlotError):
    """The run was given up: the infrastructure lost too many rollouts one after another."""
