"""`python -m loadtests.run` as a person calls it, on a local stack: what it says, how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from loadtests.run import app
from tests import plain_http
from tests.load.command import ROOT, command, run
from tests.stack import Stack, private_stack
from tests.stopped import stopped
from tests.waiting import SECONDS, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with private_stack() as running:
        yield running


def test_a_missed_bound_fails_the_command_and_is_named(tmp_path: Path, stack: Stack) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "churn.rate: {what: impossible, of: phases.churn.kinds.create.rate / baselines.spawn.rate, at_least: 1000}\n"
        "churn.lost: {of: phases.churn.infrastructure, at_most: 0}\n"
    )
    done = run("churn", *server(stack), "--spec", str(spec), "--set", "seconds=1", reports=tmp_path)
    assert done.returncode == 1
    assert "bound missed: churn.rate is " in done.stdout
    assert "must be ≥ 1000" in done.stdout
    assert "bound missed: churn.lost" not in done.stdout
    assert "class=bad" in (tmp_path / "churn" / "report.html").read_text()


def server(stack: Stack) -> list[str]:
    return ["--short", "--on", "server", "--url", stack.url, "--api-key", stack.api_key]


def in_steady(*words: str, reports: Path, within: tuple[str, ...] = ()) -> tuple[subprocess.Popen[str], str]:
    """A run that has begun with the phase `steady`, and what it has said until then; `within`: what starts it."""
    process = subprocess.Popen(
        [*within, *command("steady", *words, reports=reports)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    said = ""
    while "phase steady" not in said:
        said += process.stdout.readline()
    return process, said


@pytest.mark.longest
def test_a_generator_that_was_held_up_is_told(tmp_path: Path, stack: Stack) -> None:
    words = ("--set", "seconds=20", "--set", "rate=20", "--set", "processes=1")
    process, said = in_steady(*server(stack), *words, reports=tmp_path)
    (generator,) = [pid for pid in children(process.pid) if b"loadtests.load.worker" in cmdline(pid)]
    before = executed(stack)
    wait_until(lambda: executed(stack) > before, pause=0.1)  # it works on the phase
    with stopped(generator):
        time.sleep(1.0)  # so long it is held up
    said += process.communicate(timeout=SECONDS)[0]
    assert "the load generator lagged, its times are too long: steady: " in said
    summary = json.loads((tmp_path / "steady" / "summary.json").read_text())
    generator_told = summary["phases"]["steady"]["generator"]
    assert generator_told["lag"]["max"] > 0.8
    assert generator_told["sends"]["max"] > 0.5
    # What was intended in the second that it stood still waited, and that is in the latency, not in the service time.
    execs = summary["phases"]["steady"]["kinds"]["exec"]
    assert execs["latency"]["max"] > 0.5
    assert execs["service"]["p50"] < execs["latency"]["max"] / 2
    assert "the load generator lagged" in (tmp_path / "steady" / "report.html").read_text()


def executed(stack: Stack) -> float:
    """The commands that the gateway has answered so far."""
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    answer = plain_http.get(f"{stack.url}/metrics", headers=headers, timeout=SECONDS)
    return sum(
        sample.value
        for family in text_string_to_metric_families(answer.raise_for_status().text)
        for sample in family.samples
        if sample.name == "sandlot_requests_total" and sample.labels["route"] == "exec"
    )


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def cmdline(pid: int) -> bytes:
    """Nothing of one that is gone: the commands that are run beside the load are short."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


# A shell's background job ignores SIGINT.
BACKGROUND = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")


@pytest.mark.parametrize(
    ("number", "within"), [(signal.SIGINT, ()), (signal.SIGTERM, ()), (signal.SIGTERM, BACKGROUND)]
)
def test_an_interrupted_run_ends_its_sandboxes_and_its_processes(
    tmp_path: Path, stack: Stack, number: int, within: tuple[str, ...]
) -> None:
    process, _ = in_steady(*server(stack), "--set", "seconds=60", reports=tmp_path, within=within)
    workers = children(process.pid)
    process.send_signal(number)
    said, _ = process.communicate(timeout=SECONDS)
    assert process.returncode != 0
    assert "never retrieved" not in said
    assert "was destroyed" not in said
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    assert list_sandboxes(stack) == []


def list_sandboxes(stack: Stack) -> list[str]:
    from sandlot import Client, Sandbox

    with Client(url=stack.url, api_key=stack.api_key) as client:
        return [info.id for info in Sandbox.list(client=client)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("stedy",), "there is no profile 'stedy'; there are burst, callers, churn"),
        (("steady", "--set", "rate"), "--set rate: must be NAME=VALUE"),
        (("steady", "--set", "rate=fast"), "steady.yaml: phases[2].open.rate: expected `float`, got `str`"),
        (("steady", "--on", "server", "--url", ""), "--on server: needs --url and --api-key"),
        (("steady", "--on", "cluster", "--value", "pools=none"), "--value pools=none: must be NAME=JSON"),
        (("steady", "--value", "pools={}"), "--value: only with --on cluster"),
        (("steady", "--spec", "/nowhere.yaml"), "/nowhere.yaml"),
        (
            ("failover", "--on", "server", "--url", "http://127.0.0.1:9", "--api-key", "k"),
            "failover: it kills or attacks parts: only on a stack or a cluster of its own",
        ),
        (
            ("swe-dataset", "--on", "server", "--url", "http://127.0.0.1:9", "--api-key", "k"),
            "swe-dataset: it needs slots and images that the load test provides: only on a stack or a cluster of its own",
        ),
        (
            ("code-env", "--on", "server", "--url", "http://127.0.0.1:9", "--api-key", "k"),
            "code-env: it kills or attacks parts: only on a stack or a cluster of its own",
        ),
        (
            ("strangers", "--on", "server", "--url", "http://127.0.0.1:9", "--api-key", "k"),
            "strangers: it kills or attacks parts: only on a stack or a cluster of its own",
        ),
    ],
)
def test_wrong_arguments_end_at_once_with_the_reason(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = CliRunner().invoke(app, [*words, "--reports", str(tmp_path)])
    assert done.exit_code == 2
    assert said in done.output.replace("\n", " ")
    assert isinstance(done.exception, SystemExit), "and no traceback"


def test_a_server_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    words = ("--short", "--on", "server", "--url", "http://127.0.0.1:9", "--api-key", "k")
    done = run("churn", *words, reports=tmp_path, timeout=110)
    assert done.returncode == 2
    assert "the load test cannot go on" in done.stdout
