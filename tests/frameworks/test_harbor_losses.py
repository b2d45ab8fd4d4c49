"""Trials of unmodified harbor while Sandlot breaks: none is lost with its gateway, a lost sandbox's runs again."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.processes import sidecars
from tests.frameworks.conftest import Run
from tests.frameworks.gate import Gate
from tests.frameworks.harbor_results import ALONE, OURS, SCRIPT, command, job, trials
from tests.frameworks.harbor_tasks import Task
from tests.stack import Stack
from tests.waiting import wait_until

# `python -m tests.frameworks harbor` has 200/32, by frameworks.toml.
TRIALS, AT_ONCE = (int(number) for number in os.environ.get("SANDLOT_HARBOR_TRIALS", "16/8").split("/"))
ALL_TRIALS_SECONDS = max(700.0, 9.0 * TRIALS)  # a failure of harbor ends the waits at once

pytestmark = [
    pytest.mark.clients,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(ALL_TRIALS_SECONDS + 200),
]


def test_no_trial_is_lost_with_its_gateway_and_one_of_a_lost_sandbox_runs_again(
    run_framework: Run, stack: Stack, tmp_path: Path
):
    outage, loss = tmp_path / "outage", tmp_path / "loss"
    all_of_them = ("-k", str(TRIALS), "-n", str(AT_ONCE))
    once_more = ("--max-retries", "1", "--retry-include", "SandboxInfrastructureError")
    lines = [
        command(tmp_path / "once", outage, environment=OURS, agent="oracle", more=all_of_them),
        command(tmp_path / "struck", loss, environment=OURS, agent="oracle", more=once_more),
    ]
    with Gate() as during_outage, Gate() as during_loss, ThreadPoolExecutor(1) as beside:
        task(name="once", gate=during_outage).write(tmp_path / "once", image="host")
        task(name="struck", gate=during_loss).write(tmp_path / "struck", image="host")
        running = beside.submit(
            run_framework,
            "harbor",
            str(SCRIPT),
            json.dumps(lines),
            environment=ALONE,
            seconds=ALL_TRIALS_SECONDS,
        )
        try:
            # First all are in their commands, then half of them: the others begin, are verified, or end.
            for arrived in (AT_ONCE, AT_ONCE + AT_ONCE // 2):
                wait_until(
                    lambda: running.done() or during_outage.arrived >= arrived,  # noqa: B023
                    seconds=ALL_TRIALS_SECONDS,
                )
                stack.kill()
                stack.start()
                during_outage.release()
            during_outage.release(keep_open=True)
            wait_until(lambda: running.done() or during_loss.arrived, seconds=ALL_TRIALS_SECONDS)
            for sidecar in sidecars(stack):
                os.kill(sidecar, signal.SIGKILL)
        finally:
            for gate in (during_outage, during_loss):
                gate.release(keep_open=True)
        running.result()
    assert [trial.outcome for trial in trials(outage)] == [(1.0, None)] * TRIALS
    assert [trial.outcome for trial in trials(loss)] == [(1.0, None)]
    assert [job(jobs)["stats"]["n_retries"] for jobs in (outage, loss)] == [0, 1]


def task(*, name: str, gate: Gate) -> Task:
    """One whose command waits at the gate; one that ran twice leaves more than two lines."""
    runs = "/logs/agent/runs"
    return Task(
        name=name,
        solution=f"echo begun >> {runs}; {gate.command}; echo over >> {runs}",
        check=f"[ \"$(tr '\\n' ' ' < {runs})\" = 'begun over ' ]",
    )
