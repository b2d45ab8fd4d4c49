"""Unmodified harbor runs its tasks through its `prime` environment and through ours: oracle passes, nop fails."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import plain_http
from tests.frameworks.conftest import Run
from tests.frameworks.harbor_results import (
    ALONE,
    ENDING,
    OURS,
    PRIME,
    SCRIPT,
    by_task,
    command,
    commands_of_the_page,
    job,
    trials,
)
from tests.frameworks.harbor_tasks import BIG, SENDS, Task, own_tasks, ten_tasks
from tests.policies import has_egress_policies
from tests.prime.environments import WHOLE
from tests.prime.server import Server

# `longest`: the tests of this module read the results of one process.
pytestmark = [
    pytest.mark.clients,
    pytest.mark.longest,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

KEPT = [
    "-i",
    "plain",
    "--no-delete",
    "--override-cpus",
    "0.5",
    "--override-memory-mb",
    "300",
    "--override-storage-mb",
    "400",
]
ENDS = ("between", "solution", "start", "tests")  # when the code of these tasks ends its sandbox
RETRIED = ("-n", "3", "--max-retries", "2")
# An agent that does nothing shows that a check can fail, which is the task's doing: all are tried by make test-frameworks.
IDLE = None if WHOLE in os.environ else {"plain", "account", "dockerfile", "gpu"}


@dataclass(frozen=True)
class Backend:
    """What tasks see that differs between backends."""

    no_gpus: str  # the exception of a task that asks for GPUs, which the server does not have
    no_gpus_word: str  # of its message
    asks: str | None  # the program by which tasks find what an egress policy forbids; None: it holds none

    @property
    def ten(self) -> list[Task]:
        return ten_tasks(asks=self.asks)

    @property
    def every(self) -> list[Task]:
        return [*self.ten, *own_tasks(egress=self.asks is not None)]


@pytest.fixture(scope="module")
def backend() -> Backend:
    asks = SENDS if has_egress_policies() else None
    return Backend(no_gpus="BadRequest", no_gpus_word="gpu_count", asks=asks)


def idle(tasks: list[Task]) -> set[str]:
    """The names of those that an agent tries that does nothing."""
    return {task.name for task in tasks if IDLE is None or task.name in IDLE}


def only_idle(tasks: list[Task]) -> list[str]:
    """Arguments of harbor."""
    return ["-n", "4", *(word for name in sorted(idle(tasks)) for word in ("-i", name))]


@pytest.fixture(scope="module")
def jobs(
    server: Server, backend: Backend, run_framework: Run, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The directory with harbor's jobs, by environment and agent; `kept` is one of which the sandbox stays."""
    home = tmp_path_factory.mktemp("harbor")
    ten, every = backend.ten, backend.every
    for task in ten:
        task.write(home / "ten", image=server.image)
    for task in every:
        task.write(home / "all", image=server.image)
    next(task for task in ten if task.name == "plain").write(home / "one", image=server.image)
    for name in ENDS:
        task = Task(name=name, solution="true", check="true", environment='workdir = "/srv"')
        task.write(home / "ends", image=server.image)
    filtered = (*RETRIED, "-i", "tests", "--verifier-include-logs", "*")
    lines = [
        *commands_of_the_page(home / "one", home / "page"),
        command(home / "ten", home / "prime-oracle", environment=PRIME, agent="oracle"),
        command(home / "ten", home / "prime-nop", environment=PRIME, agent="nop", more=only_idle(ten)),
        command(home / "all", home / "sandlot-oracle", environment=OURS, agent="oracle"),
        command(home / "all", home / "sandlot-nop", environment=OURS, agent="nop", more=only_idle(every)),
        command(home / "ten", home / "kept", environment=OURS, agent="oracle", more=KEPT),
        command(home / "ends", home / "ended", environment=ENDING, agent="oracle", more=RETRIED),
        command(home / "ends", home / "ended-filtered", environment=ENDING, agent="oracle", more=filtered),
    ]
    run_framework("harbor", str(SCRIPT), json.dumps(lines), environment=ALONE, seconds=800)
    return home


def test_the_built_in_prime_environment_runs_every_task(jobs: Path, backend: Backend):
    oracle = {name: trial.outcome for name, trial in by_task(jobs / "prime-oracle").items()}
    assert oracle == {task.name: (task.reward, task.exception) for task in backend.ten}
    nop = {name: trial.outcome for name, trial in by_task(jobs / "prime-nop").items()}
    assert nop == dict.fromkeys(idle(backend.ten), (0.0, None))


def test_the_commands_of_the_page_run(jobs: Path):
    outcomes = [[trial.outcome for trial in trials(job)] for job in sorted((jobs / "page").iterdir())]
    assert outcomes == [[(1.0, None)], [(1.0, None)], [(1.0, None)] * 2]


def test_our_environment_runs_every_task(jobs: Path, backend: Backend):
    refused = {"gpu": (None, backend.no_gpus)}
    oracle = {name: trial.outcome for name, trial in by_task(jobs / "sandlot-oracle").items()}
    assert oracle == {task.name: (task.reward, task.exception) for task in backend.every} | refused
    nop = {name: trial.outcome for name, trial in by_task(jobs / "sandlot-nop").items()}
    assert nop == dict.fromkeys(idle(backend.every), (0.0, None)) | refused


def test_preflight_takes_keywords_or_none(server: Server, run_framework: Run):
    """harbor 0.26 gives them, by name; older ones give none."""
    script = (
        "import json, sys; from sandlot.integrations.harbor import SandlotEnvironment as ours\n"
        "for calls in json.loads(sys.argv[1]): ours.preflight(**calls)"
    )
    given = json.dumps([{}, {"kwargs": {"pool": "default"}}, {"kwargs": None}])
    run_framework("harbor", "-c", script, given, environment=ALONE)
    with pytest.raises(AssertionError, match=r"sandlot: .*API key"):
        run_framework("harbor", "-c", script, given, environment={**ALONE, "SANDLOT_API_KEY": "wrong"})


@pytest.mark.parametrize(("name", "tasks"), [("ended", ENDS), ("ended-filtered", ("tests",))])
def test_code_that_ends_its_sandbox_has_no_reward_and_no_other_try(
    jobs: Path, name: str, tasks: tuple[str, ...]
):
    outcomes = {task: trial.outcome for task, trial in by_task(jobs / name).items()}
    assert outcomes == dict.fromkeys(tasks, (None, "RewardFileNotFoundError"))
    assert job(jobs / name)["stats"]["n_retries"] == 0


def test_a_dockerfile_is_built_once_also_for_another_machine(jobs: Path, run_framework: Run, tmp_path: Path):
    """Of the other machine it has a copy of the task, a home and a host name; the build wrote a time."""
    shutil.copytree(jobs / "all" / "dockerfile", tmp_path / "copied")
    elsewhere = str(Path(__file__).with_name("harbor_elsewhere.py"))
    told = run_framework("harbor", elsewhere, str(tmp_path / "copied"), environment=ALONE)
    folder = by_task(jobs / "sandlot-oracle")["dockerfile"].folder
    assert told == (folder / "agent" / "when").read_text()


@pytest.mark.parametrize("environment", ["prime", "sandlot"])
def test_logs_of_the_agent_and_the_verifier_come_back_whole(jobs: Path, environment: str):
    folder = by_task(jobs / f"{environment}-oracle")["logs"].folder
    assert [(folder / name / "big.log").stat().st_size for name in ("agent", "verifier")] == [BIG, BIG]


def test_gpus_that_the_server_does_not_have_are_refused_by_name(jobs: Path, backend: Backend):
    told = by_task(jobs / "sandlot-oracle")["gpu"].result["exception_info"]["exception_message"]
    assert backend.no_gpus_word in told


def test_a_kept_sandbox_stays_with_the_sizes_that_were_asked_for_and_no_other_is_left(
    jobs: Path, server: Server
):
    headers = {"Authorization": f"Bearer {server.api_key}"}
    answer = plain_http.get(f"{server.url}/api/v1/sandbox?is_active=true", headers=headers, timeout=60)
    (left,) = answer.json()["sandboxes"]
    assert left["labels"] == ["harbor"]
    assert (left["cpuCores"], left["memoryGB"], left["diskSizeGB"]) == (0.5, 300 / 1024, 400 / 1024)
