"""Defines a rollout (a program to grade) and its outcome."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from sandlot.errors import SandlotError

from sandlot_grade.program import Program, build


@dataclass(frozen=True, slots=True)
class Rollout:
    """A candidate with its tests. `index` is its position in the input; `kind` groups it in tables."""

    index: int
    task_id: str
    kind: str
    code: str
    test: str
    entry_point: str | None

    def program(self) -> Program:
        """Return the program, with a new marker at each call."""
        return build(code=self.code, test=self.test, entry_point=self.entry_point)


@dataclass(frozen=True, slots=True)
class Timings:
    """Durations of the steps in seconds, as the caller sees them; `whole` is create to delete of the last attempt.

    `started` is seconds since the first rollout of the run started.
    """

    started: float = 0.0
    create: float = 0.0
    write: float = 0.0
    exec: float = 0.0
    delete: float = 0.0
    whole: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a rollout.

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
        """Return the outcome as a JSON object, with `passed`."""
        return {"passed": self.passed, **asdict(self)}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Outcome:
        """Parse the result of `document`. Raises KeyError, TypeError or ValueError if it is invalid."""
        names = cls.__dataclass_fields__
        values = {name: document[name] for name in names}
        values["timings"] = Timings(**values["timings"])
        values["lost"] = tuple(values["lost"])
        values["notes"] = tuple(values["notes"])
        return cls(**values)


class Stopped(SandlotError):
    """Raised when a run is aborted because the infrastructure lost too many rollouts in a row."""
