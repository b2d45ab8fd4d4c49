"""Verifies the demo's run: each kind ended as expected, and no other rollout was affected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandlot_grade.candidates import KINDS, Kind
from sandlot_grade.tally import Tally
from sandlot_grade.work import Outcome

# Without a writable cgroup the limit is an rlimit: the program gets MemoryError or EAGAIN and exits by itself.
WITHOUT_CGROUP = {"oom": {"failed", "signaled"}, "pids_limit": {"failed", "signaled", "timeout"}}

Alternatives = Mapping[str, frozenset[str]]


def faults(
    made: Tally, *, expected: Mapping[str, int], instead: Alternatives | None = None, limit: int = 3
) -> list[str]:
    """Return a line for each kind with a wrong end, with up to `limit` examples; empty if there is none.

    `expected` is the number of rollouts of each kind, by name; `instead` maps a result to others that are right, too.
    """
    kinds = {kind.name: kind for kind in KINDS}
    lines: list[str] = []
    by_kind: dict[str, list[Outcome]] = {name: [] for name in expected}
    for outcome in made.outcomes:
        by_kind.setdefault(outcome.kind, []).append(outcome)
    for name, outcomes in by_kind.items():
        if len(outcomes) != expected.get(name, 0):
            lines.append(f"{name}: {len(outcomes)} rollouts ended instead of {expected.get(name, 0)}")
        wrong = [
            outcome for outcome in outcomes if not as_expected(outcome, kind=kinds[name], instead=instead)
        ]
        if wrong:
            lines.append(
                f"{name}: {len(wrong)} of {len(outcomes)} did not end as {kinds[name].result!r}: {_examples(wrong[:limit])}"
            )
    harmed = [outcome for outcome in made.outcomes if outcome.lost]
    if harmed:
        causes = "; ".join(
            f"{outcome.task_id} {outcome.kind}: {outcome.lost[-1]}" for outcome in harmed[:limit]
        )
        lines.append(f"{len(harmed)} rollouts lost an attempt to the infrastructure: {causes}")
    return lines


def as_expected(outcome: Outcome, *, kind: Kind, instead: Alternatives | None = None) -> bool:
    if outcome.result == kind.result or outcome.result in (instead or {}).get(kind.result, ()):
        return True
    by_rlimit = any("rlimit" in note for note in outcome.notes)
    return by_rlimit and outcome.result in WITHOUT_CGROUP.get(kind.result, ())


def _examples(outcomes: Sequence[Outcome]) -> str:
    return "; ".join(
        f"{outcome.task_id} {outcome.result} (exit code {outcome.exit_code}"
        + (f", {outcome.message}" if outcome.message else "")
        + (f", {outcome.stderr_tail.strip()[-160:]!r}" if outcome.stderr_tail.strip() else "")
        + ")"
        for outcome in outcomes
    )
