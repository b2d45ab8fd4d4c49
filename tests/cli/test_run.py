"""`sandlot run`: its command's streams and exit code are the program's own, and no sandbox is left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sandlot import Client, Sandbox

from tests.cli.conftest import Run, environment
from tests.sdk.conftest import Server
from tests.waiting import SECONDS


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["exit 7"], 7),
        (["sh", "-c", "exit 9"], 9),
        (["kill -9 $$"], 137),
        (["no-such-program"], 127),
    ],
)
def test_run_exits_with_the_commands_code(cli: Run, command: list[str], code: int) -> None:
    assert cli("run", "host", "--", *command).returncode == code


def test_run_keeps_the_streams_apart_and_deletes_the_sandbox(cli: Run, server: Server) -> None:
    done = cli("run", "--label", "cli-run", "host", "--", "echo out; echo err >&2")
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 0)
    with Client(url=server.url, api_key=server.api_key) as client:
        ours = [info for info in Sandbox.list(active=None, client=client) if "cli-run" in info.labels]
    assert ours
    assert all(info.ended for info in ours)


def test_run_and_ps_know_the_training_run(cli: Run) -> None:
    done = cli("run", "--run", "by-option", "--keep", "host", "--", "true", SANDLOT_RUN="by-env")
    assert done.returncode == 0, done.stderr
    assert cli("run", "--keep", "host", "--", "true", SANDLOT_RUN="by-env").returncode == 0
    for run in ("by-option", "by-env"):
        [info] = json.loads(cli("ps", "--run", run, "--json").stdout)
        assert info["run"] == run
        assert run in cli("ps").stdout
        cli("rm", info["id"])
    label = "of-no-run"
    cli("run", "--run", "", "--label", label, "--keep", "host", "--", "true", SANDLOT_RUN="by-env")
    [info] = json.loads(cli("ps", "--label", label, "--json").stdout)
    assert info["run"] is None
    cli("rm", info["id"])
    refused = cli("run", "--run", "a/b", "host", "--", "true")
    assert refused.returncode == 2
    assert refused.stderr.startswith("sandlot: run: must be 1 to 63 of the characters A-Z a-z 0-9 . _ -")


def test_run_passes_environment_and_input(cli: Run) -> None:
    done = cli(
        "run",
        "-i",
        "-e",
        "A=1",
        "-e",
        "GREETING",
        "host",
        "--",
        "echo $A $GREETING; cat",
        stdin="in",
        GREETING="hi",
    )
    assert done.stdout == "1 hi\nin"
    assert "NOT_SET" in cli("run", "-e", "NOT_SET", "host", "--", "true").stderr


def test_the_shell_of_a_line(cli: Run) -> None:
    which = "echo ${BASH_VERSION:+bash}"
    assert cli("run", "host", "--", which).stdout == "bash\n"
    assert cli("run", "--shell", "sh", "host", "--", which).stdout == "\n"
    assert "shell" in cli("run", "--shell", "zsh", "host", "--", which).stderr


def test_run_json(cli: Run) -> None:
    done = cli("run", "--json", "host", "--", "echo out; exit 3")
    document = json.loads(done.stdout)
    assert done.returncode == document["exit_code"] == 3
    assert document["stdout"] == "out\n"
    assert document["verdict"] == "exited"
    assert document["usage"]["wall"] > 0


def test_a_timeout_is_124(cli: Run) -> None:
    done = cli("run", "--timeout", "10", "host", "--", "echo begun; sleep 60")
    assert (done.returncode, done.stdout) == (124, "begun\n")
    assert "timeout" in done.stderr


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_a_bad_user_is_126(cli: Run, extra: list[str]) -> None:
    done = cli("run", *extra, "--user", "nobody-here", "host", "--", "true")
    assert (done.returncode, done.stderr.count("\n")) == (126, 1)
    assert "user" in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_no_sandbox(
    server: Server, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    label = f"interrupted-{number}"
    process = subprocess.Popen(
        [sys.executable, "-m", "sandlot", "run", "--label", label, "host", "--", "echo begun; sleep 60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(server.url, server.api_key, tmp_path),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=SECONDS)
    assert (errors, process.returncode) == ("", code)
    with Client(url=server.url, api_key=server.api_key) as client:
        assert Sandbox.list(labels=[label], client=client) == []
