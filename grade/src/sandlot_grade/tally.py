"""Aggregates outcomes: by kind, by verdict, and the percentiles of each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sandlot_grade.report.stats import percentile
from sandlot_grade.work import Outcome

STEPS = ("create", "write", "exec", "delete", "whole")
SHARES = (0.5, 0.9, 0.99)


@dataclass(slots=True)
class KindTally:
    """The results of the rollouts of one kind."""

    name: str
    results: Counter[str] = field(default_factory=Counter[str])

    @property
    def total(self) -> int:
        return self.results.total()

    @property
    def graded(self) -> int:
        """The number of graded rollouts: a lost one says nothing about the code."""
        return self.total - self.results["lost"]

    @property
    def pass_rate(self) -> float | None:
        return self.results["passed"] / self.graded if self.graded else None


@dataclass(slots=True)
class Tally:
    """A run's outcomes so far; the first `reused` of them come from an earlier run."""

    kinds: dict[str, KindTally] = field(default_factory=dict[str, KindTally])
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    reused: int = 0

    @classmethod
    def ordered(cls, names: Iterable[str]) -> Tally:
        """Return an empty tally that lists these kinds in this order."""
        return cls(kinds={name: KindTally(name) for name in names})

    def add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        kind = self.kinds.setdefault(outcome.kind, KindTally(outcome.kind))
        kind.results[outcome.result] += 1

    def rate(self, *, elapsed: float) -> float:
        """Return the rollouts per second over `elapsed` seconds of this run; 0 if none ran."""
        return (len(self.outcomes) - self.reused) / elapsed if elapsed > 0 else 0.0

    @property
    def passed(self) -> int:
        return sum(outcome.passed for outcome in self.outcomes)

    @property
    def lost(self) -> int:
        return sum(outcome.result == "lost" for outcome in self.outcomes)

    @property
    def retried(self) -> int:
        """Attempts that the infrastructure lost, even if a later attempt succeeded."""
        return sum(len(outcome.lost) for outcome in self.outcomes)

    @property
    def problems(self) -> int:
        return len({outcome.task_id for outcome in self.outcomes})

    @property
    def solved(self) -> int:
        """Problems with at least one rollout that passed."""
        return len({outcome.task_id for outcome in self.outcomes if outcome.passed})

    def step(self, name: str) -> list[float]:
        """Return the seconds of one step, for all rollouts that were not lost."""
        return [getattr(outcome.timings, name) for outcome in self.outcomes if outcome.result != "lost"]

    def percentiles(self, name: str) -> dict[str, float]:
        """Return `{"p50": seconds, ...}` of a step; empty without measurements."""
        return percentiles(self.step(name))


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return `{"p50", "p90", "p99"}` of values; empty for none."""
    return {f"p{share * 100:.0f}": percentile(values, share) for share in SHARES} if values else {}


def tally_of_earlier(outcomes: Iterable[Outcome]) -> Tally:
    """Return a tally that starts with the outcomes of an earlier run."""
    made = Tally()
    for outcome in outcomes:
        made.add(outcome)
    made.reused = len(made.outcomes)
    return made
