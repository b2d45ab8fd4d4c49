"""The policy of `sandlot demo-rl` learns from rewards, samples without one teach nothing, and the command runs them all."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sandlot_grade.rl.policy import advantages
from sandlot_grade.rl.tasks import CASES, TASKS, Task, program, reward
from sandlot_grade.rl.training import Training, train

from tests.leaks import no_leaks

SANDLOT = str(Path(sys.executable).with_name("sandlot"))
ANSWERS = ("x + y", "x - y", "x * y", "y * 2", "x * x", "x % 3", "x + y + 1", "x * x - y")


def run_here(task: Task, answer: str) -> float:
    """As in a sandbox; safe, since the policy's words are operators and numbers."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(program(task, answer), {})  # noqa: S102
    return reward(printed.getvalue())


def trained(*, lost: int = 0) -> Training:
    """A training in which every `lost`-th sample is masked."""

    async def run(answers: Sequence[tuple[Task, str]]) -> list[float]:
        rewards = [run_here(task, answer) for task, answer in answers]
        return [np.nan if lost and n % lost == 0 else found for n, found in enumerate(rewards)]

    return asyncio.run(train(run, steps=30, group=16, seconds=600.0, seed=3))


@pytest.mark.parametrize(("task", "answer"), list(zip(TASKS, ANSWERS, strict=True)), ids=ANSWERS)
def test_every_task_can_be_solved(task: Task, answer: str) -> None:
    assert run_here(task, answer) == 1.0


@pytest.mark.parametrize("output", ["", "passed", "passed x", f"passed {len(CASES)} more", "Traceback"])
def test_output_of_another_form_earns_nothing(output: str) -> None:
    assert reward(output) == 0.0


def test_the_reward_rises_also_when_every_fifth_sample_is_lost() -> None:
    whole, masked = trained(), trained(lost=5)
    for made in (whole, masked):
        assert made.first < 0.15
        assert made.last > 0.5
    assert whole.masked == 0
    assert masked.masked == 30 * -(-16 * len(TASKS) // 5)


def test_a_masked_sample_changes_no_advantage() -> None:
    found = advantages(np.array([1.0, 0.0, np.nan, np.nan, np.nan, np.nan]), group=3)
    assert found[:3] == pytest.approx([1.0, -1.0, 0.0], abs=1e-3)
    assert list(found[3:]) == [0.0, 0.0, 0.0]


@pytest.mark.root
def test_the_command_runs_every_answer_in_a_sandbox() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="sandlot-") as name,  # short, since sockets are below it
        no_leaks(marker=name, descriptors=False),
    ):
        report = Path(name, "rl.html")
        done = subprocess.run(
            [SANDLOT, "demo-rl", "--steps", "2", "--group", "2", "--html", str(report), "--json"],
            env={**os.environ, "TMPDIR": name},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 1, f"two steps teach nothing, which is a fault: {done.stdout}{done.stderr}"
        assert "What it writes at the end" in report.read_text()
    found = json.loads(done.stdout)
    assert [fault.partition(":")[0] for fault in found["faults"]] == ["the reward did not rise"]
    assert (found["steps"], found["rollouts"], found["masked"]) == (2, 32, 0)
    assert any(found["rewards"])
