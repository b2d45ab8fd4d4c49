"""Runs the tests' state machine models for some minutes with new examples: `make model MINUTES=10`."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

ROOT = Path(__file__).resolve().parents[1]
BATCH = 100  # examples between two checks of the time
STEPS = 60  # events per example
SETTINGS = settings(
    max_examples=BATCH,
    stateful_step_count=STEPS,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


def models() -> list[type[RuleBasedStateMachine]]:
    """Return all models of the tests, sorted by file name."""
    found: list[type[RuleBasedStateMachine]] = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if ".TestCase\n" not in path.read_text():
            continue
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        found += [
            one
            for one in vars(module).values()
            if isinstance(one, type)
            and issubclass(one, RuleBasedStateMachine)
            and one.__module__ == module.__name__
        ]
    return found


def find_holes(*, minutes: float) -> int:
    """Search for each known defect for its share of the time; return 1 if one is not found."""
    from tests.gateway import holes as gateway
    from tests.sidecar import holes as sidecar

    missed = 0
    every = [*gateway.HOLES, *sidecar.HOLES]
    for hole, model in every:
        began, found = time.monotonic(), False
        with hole():
            while not found and time.monotonic() - began < minutes * 60 / len(every):
                found = not holds(model)
        print(
            f"{hole.__name__}: {'found' if found else 'NOT FOUND'} in {time.monotonic() - began:.0f} s",
            flush=True,
        )
        missed += not found
    return min(missed, 1)


def holds(model: type[RuleBasedStateMachine]) -> bool:
    """Return whether the model holds in all examples of a batch."""
    try:
        run_state_machine_as_test(model, settings=settings(SETTINGS, phases=[Phase.generate]))
    except AssertionError:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="make model", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="duration for all models together")
    parser.add_argument("--only", default="", help="models whose names contain this")
    parser.add_argument(
        "--holes", action="store_true", help="reintroduce known defects and check that the models find them"
    )
    given = parser.parse_args()
    if given.holes:
        return find_holes(minutes=given.minutes)
    chosen = [one for one in models() if given.only in one.__name__]
    if not chosen:
        parser.error(f"--only: no model's name contains {given.only!r}")
    for one in chosen:
        end, examples = time.monotonic() + given.minutes * 60 / len(chosen), 0
        while examples == 0 or time.monotonic() < end:
            run_state_machine_as_test(one, settings=SETTINGS)  # raises with the shortest example that fails
            examples += BATCH
        print(f"{one.__module__}.{one.__name__}: {examples} examples of up to {STEPS} events", flush=True)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
