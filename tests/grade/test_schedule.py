"""How many rollouts run at once: by cores and memory, and fewer while the cores are crowded."""

from __future__ import annotations

from sandlot_grade.schedule import Pace, available_memory, fitting
from sandlot_grade.work import Outcome, Timings

from tests.grade.outcomes import outcome


def _ran(*, wall: float, cpu: float = 0.05, verdict: str | None = "exited") -> Outcome:
    return outcome(cpu=cpu, verdict=verdict, timings=Timings(exec=wall))


def test_memory_and_cores_bound_the_number() -> None:
    assert fitting(memory=256 << 20, cores=2, available=64 << 30) == 24
    assert fitting(memory=256 << 20, cores=2, available=2 << 30) == 5
    assert fitting(memory=8 << 30, cores=64, available=1 << 30) == 1
    assert fitting(memory=1 << 20, cores=512, available=1 << 40) == 256
    assert available_memory() > 64 << 20


def test_crowded_cores_lower_the_number_and_free_ones_raise_it() -> None:
    pace = Pace(most=24, least=4)
    for _ in range(100):
        pace.saw(_ran(wall=5.0))
    assert pace.now == 4
    for _ in range(100):
        pace.saw(_ran(wall=0.06))
    assert pace.now == 24


def test_a_timeout_or_a_loss_does_not_count_as_crowded() -> None:
    pace = Pace(most=24, least=4)
    for verdict in ("timeout", None):
        for _ in range(50):
            pace.saw(_ran(wall=8.0, verdict=verdict))
    assert pace.now == 24


def test_a_given_number_is_kept() -> None:
    pace = Pace(most=7, least=7)
    for _ in range(50):
        pace.saw(_ran(wall=5.0))
    assert pace.now == 7
