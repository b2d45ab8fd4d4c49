"""How many rollouts run at once: by cores and memory, and fewer while the cores are crowded."""

from __future__ import annotations

import gc

import pytest
from sandlot import AsyncClient
from sandlot_grade.errors import GradeError
from sandlot_grade.rollout import Grader
from sandlot_grade.schedule import Pace, available_memory, fitting, run_all
from sandlot_grade.work import Outcome, Rollout, Timings

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


async def test_what_stops_many_at_once_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refused(*_: object) -> Outcome:
        raise GradeError("no python3")

    monkeypatch.setattr(Grader, "grade", refused)
    rollouts = [Rollout(index=n, task_id="t", kind="k", code="", test="", entry_point=None) for n in range(9)]
    async with AsyncClient(url="http://127.0.0.1:9", api_key="k") as client:
        with pytest.raises(GradeError, match="no python3"):
            async for _ in run_all(rollouts, grader=Grader(client=client), pace=Pace(most=9, least=9)):
                pass
    gc.collect()  # asyncio complains of an error that nobody took when its task is collected
    assert caplog.messages == []
