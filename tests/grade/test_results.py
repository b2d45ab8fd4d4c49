"""Results: written as they come, taken over by the next run, counted in tables, judged by the demo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console
from sandlot_grade.errors import GradeError, InputError
from sandlot_grade.results import Writer, earlier, results_path
from sandlot_grade.table import render, summary
from sandlot_grade.tally import Tally, tally_of_earlier
from sandlot_grade.verify import faults
from sandlot_grade.work import Outcome

from tests.grade.outcomes import outcome


def _keys(count: int) -> dict[int, str]:
    return {index: f"key {index}" for index in range(count)}


def _write(path: Path, *outcomes: Outcome) -> None:
    with Writer(path, kept={}) as writer:
        for made in outcomes:
            writer.add(made)


def test_name_of_the_results_file() -> None:
    assert results_path(Path("a/b.jsonl")) == Path("a/b_results.jsonl")
    assert results_path(Path("b.jsonl.gz")) == Path("b_results.jsonl")


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    keys = _keys(5)
    made = [outcome(index, key=key) for index, key in keys.items()]

    def interrupted() -> None:
        with Writer(path, kept={}) as writer:
            writer.add(made[3])
            writer.add(made[1])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    kept = earlier(path, keys=keys)
    assert kept == {1: made[1], 3: made[3]}
    with Writer(path, kept=kept) as writer:
        for index in (4, 0, 2):
            writer.add(made[index])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["index"] for line in lines] == [0, 1, 2, 3, 4]
    assert all(line["passed"] is True and line["timings"]["exec"] == 0.05 for line in lines)
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.jsonl"]


def test_changed_code_and_lost_rollouts_are_graded_again(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    keys = _keys(3)
    _write(
        path,
        outcome(0, key=keys[0]),
        outcome(1, key="of other code"),
        outcome(2, key=keys[2], result="lost"),
        outcome(3, key="of a line that is gone"),
    )
    assert set(earlier(path, keys=keys)) == {0}


def test_a_last_line_cut_off_by_a_crash_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    keys = _keys(2)
    _write(path, *(outcome(index, key=key) for index, key in keys.items()))
    path.write_text(path.read_text()[:-30])
    assert set(earlier(path, keys=keys)) == {0}
    path.write_text("{\n" + path.read_text())
    with pytest.raises(InputError, match=r":1: is not JSON"):
        earlier(path, keys=keys)


def test_another_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"something": "else"}\n')
    with pytest.raises(InputError, match=":1: is not a result"):
        earlier(path, keys=_keys(1))
    with pytest.raises(GradeError, match="cannot write"), Writer(tmp_path / "no" / "where", kept={}):
        pass


def _text(made: Tally, *, elapsed: float) -> str:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(render(made, elapsed=elapsed))
    return captured.get()


def test_the_table_counts_each_kind_and_leaves_lost_ones_out_of_the_rate() -> None:
    made = Tally()
    for index in range(3):
        made.add(outcome(index))
    made.add(outcome(3, result="failed", exit_code=1))
    made.add(outcome(4, result="lost", lost=("SandboxLost: gone",) * 3))
    made.add(outcome(5, kind="endless loop", result="timeout"))
    text = _text(made, elapsed=2.0)
    row = next(line for line in text.splitlines() if "canonical" in line)
    assert row.split()[:4] == ["canonical", "5", "3", "75.0%"]
    assert "passed 3" in row
    assert "failed 1" in row
    assert "lost 1" in row
    assert "timeout 1" in text
    assert "50.0 ms" in text  # the exec's median
    assert "6 rollouts of 6 problems in 2.00 s, 3.0 rollouts/s" in text
    assert "3 attempts lost by the infrastructure, 1 rollouts without a grade" in " ".join(text.split())


def test_reused_results_do_not_count_as_speed() -> None:
    made = tally_of_earlier([outcome(index) for index in range(90)])
    for index in range(90, 100):
        made.add(outcome(index))
    assert "5.0 rollouts/s" in summary(made, elapsed=2.0)
    assert "90 reused from an earlier run" in summary(made, elapsed=2.0)
    assert "50.0 ms" in _text(tally_of_earlier([outcome()]), elapsed=0.0)
    assert "0 rollouts" in _text(Tally(), elapsed=0.0)


def _judge(*outcomes: Outcome, **expected: int) -> list[str]:
    made = Tally()
    for one in outcomes:
        made.add(one)
    return faults(made, expected={name.replace("_", " "): count for name, count in expected.items()})


def test_the_demo_accepts_only_the_right_ends() -> None:
    loop = outcome(1, kind="endless loop", result="timeout")
    assert _judge(outcome(), loop, canonical=1, endless_loop=1) == []
    (line,) = _judge(outcome(result="failed", stderr_tail="AssertionError"), canonical=1)
    assert "canonical: 1 of 1" in line
    assert "AssertionError" in line
    (line,) = _judge(outcome(kind="quits early", result="passed"), quits_early=1)
    assert "did not end as 'failed'" in line
    (line,) = _judge(outcome(kind="kills all", result="sandbox_broken"), kills_all=1)
    assert "'signaled'" in line
    (line,) = _judge(outcome(), canonical=2)
    assert "1 rollouts ended instead of 2" in line
    (line,) = _judge(canonical=164)
    assert "0 rollouts ended instead of 164" in line


def test_the_demo_fails_when_a_neighbour_was_harmed_even_if_a_retry_passed() -> None:
    (line,) = _judge(outcome(attempts=2, lost=("SandboxLost: sidecar gone",)), canonical=1)
    assert "sidecar gone" in line


def test_without_cgroups_a_limit_may_end_as_the_programs_own_failure() -> None:
    eater = {"kind": "eats memory", "result": "failed", "stderr_tail": "MemoryError"}
    assert _judge(outcome(**eater), eats_memory=1) != []
    notes = ("limits: no writable cgroup, using rlimits",)
    assert _judge(outcome(**eater, notes=notes), eats_memory=1) == []
