"""Every command but `run`: what it prints for people and for programs, and the code it exits with."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandlot import Sandbox

from tests.cli.conftest import Run, environment
from tests.complaints import WARNINGS_SHOWN
from tests.sdk.conftest import Server
from tests.sdk.service.server import Service
from tests.waiting import SECONDS


def test_keep_exec_ps_logs_rm(cli: Run) -> None:
    kept = cli("run", "--keep", "--name", "mine", "host", "--", "true")
    name = kept.stderr.rpartition("kept ")[2].strip()
    assert cli("exec", name, "echo", "again").stdout == "again\n"
    assert name in cli("ps", "-q").stdout.split()
    listed = {item["id"]: item for item in json.loads(cli("ps", "--json").stdout)}
    assert listed[name]["name"] == "mine"
    table = cli("ps").stdout
    assert table.startswith("ID")
    assert "mine" in table
    assert cli("logs", name).returncode == 0
    assert json.loads(cli("logs", "--json", name).stdout)["id"] == name
    assert cli("rm", name).stdout.strip() == name
    assert name not in cli("ps", "-q").stdout.split()
    assert name in cli("ps", "-qa").stdout.split()


def test_exec_detached(cli: Run, box: Sandbox) -> None:
    op = cli("exec", "-d", box.id, "--", "sleep 0.2; echo later").stdout.strip()
    assert box.attach(op).wait().stdout == "later\n"


def test_copy_both_ways(cli: Run, box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    (tmp_path / "tree" / "sub" / "file").write_text("content")
    assert cli("cp", str(tmp_path / "tree"), f"{box.id}:/tmp/tree").returncode == 0
    assert box.files.read_text("/tmp/tree/sub/file") == "content"
    assert cli("cp", str(tmp_path / "tree/sub/file"), f"{box.id}:/tmp/tree/").returncode == 0
    assert box.files.exists("/tmp/tree/file")
    done = cli("cp", "--json", f"{box.id}:/tmp/tree", str(tmp_path / "back"))
    assert json.loads(done.stdout)["bytes"] == 14
    assert (tmp_path / "back/sub/file").read_text() == "content"
    assert cli("cp", "-", f"{box.id}:/tmp/piped", stdin="piped").returncode == 0
    assert cli("cp", f"{box.id}:/tmp/piped", "-").stdout == "piped"
    missing = cli("cp", f"{box.id}:/tmp/none", str(tmp_path / "x"))
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert cli("cp", "a", "b").returncode == 2


def test_pools(cli: Run) -> None:
    first = cli("pools", "set", "cli-pool", "--memory", "256MiB")
    assert first.returncode == 2
    assert "--size" in first.stderr
    warm = cli("pools", "set", "cli-pool", "--size", "1", "--memory", "256MiB", "--wait", "--json")
    assert json.loads(warm.stdout)["ready"] == 1
    assert cli("pools", "set", "cli-pool", "--size", "0").returncode == 0
    shrunk = {item["name"]: item for item in json.loads(cli("pools", "ls", "--json").stdout)}["cli-pool"]
    assert (shrunk["size"], shrunk["memory"]) == (0, 256 << 20)
    assert cli("pools", "set", "cli-pool", "--pids", "100").returncode == 0
    kept = {item["name"]: item for item in json.loads(cli("pools", "ls", "--json").stdout)}["cli-pool"]
    assert (kept["size"], kept["memory"], kept["pids"]) == (0, 256 << 20, 100)
    assert kept["reuse"] == {"policy": "tenant", "max_uses": 100, "max_age": 3600.0}
    changed = cli(
        "pools", "set", "cli-pool", "--reuse", "never", "--max-uses", "7", "--max-age", "60", "--json"
    )
    assert json.loads(changed.stdout)["reuse"] == {"policy": "never", "max_uses": 7, "max_age": 60.0}
    assert cli("pools", "set", "cli-pool", "--reuse", "all").returncode == 2
    classed = cli("pools", "set", "cli-pool", "--runtime-class", "namespaces", "--json")
    assert json.loads(classed.stdout)["runtime_class"] == "namespaces", classed.stderr
    assert "namespaces" in cli("pools", "ls").stdout
    refused = cli("pools", "set", "cli-pool", "--runtime-class", "runc")
    assert (refused.returncode, "runtime_class" in refused.stderr) == (2, True), refused.stderr
    assert cli("pools", "set", "cli-pool", "-n", "1").returncode == 0
    listed = {item["name"]: item for item in json.loads(cli("pools", "ls", "--json").stdout)}
    assert listed["cli-pool"]["size"] == 1
    assert "cli-pool" in cli("pools", "ls").stdout
    assert cli("pools", "rm", "cli-pool").returncode == 0
    assert cli("pools", "rm", "cli-pool").returncode == 3


def test_a_warm_up(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"image": "host"}\n{"image": "host"}\n')
    done = cli("images", "warm", str(tmp_path / "rows.jsonl"), "--timeout", "60")
    assert done.returncode == 0, done.stderr
    name, text = done.stdout.strip().split(": ")
    assert (text, done.stderr) == ("1 of 1 images ready", "")
    begun = cli("images", "warm", str(tmp_path / "rows.jsonl"), "--no-wait", "--json")
    other = json.loads(begun.stdout)["id"]
    assert {name, other} <= {one["id"] for one in json.loads(cli("images", "ls", "--json").stdout)}
    assert json.loads(cli("images", "wait", other, "--json").stdout)["state"] == "DONE"
    assert name in cli("images", "ls").stdout
    assert cli("images", "rm", name).returncode == 0
    assert cli("images", "rm", name).returncode == 3
    (tmp_path / "rows.jsonl").write_text('{"image": "host"}\n{"what": "host"}\n')
    wrong = cli("images", "warm", str(tmp_path / "rows.jsonl"))
    assert (wrong.returncode, f"{tmp_path}/rows.jsonl:2: no field" in wrong.stderr) == (2, True)


def test_a_warm_up_tells_of_images_that_failed_and_of_tasks_without_one(
    service: Service, tmp_path: Path
) -> None:
    for name, table in (("a", 'docker_image = "missing"'), ("b", 'docker_image = "there"'), ("c", "")):
        (tmp_path / name / "environment").mkdir(parents=True)
        (tmp_path / name / "environment" / "Dockerfile").write_text("FROM scratch\n")
        (tmp_path / name / "task.toml").write_text(f"[environment]\n{table}\n")
    done = subprocess.run(
        [sys.executable, "-m", "sandlot", "images", "warm", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env={**environment(service.url, service.api_key, tmp_path), **WARNINGS_SHOWN},
    )
    assert done.returncode == 1
    assert done.stdout.endswith(": 1 of 2 images ready, 1 failed\n")
    assert done.stderr.splitlines() == [
        f"sandlot: left out 1 of the tasks, with a Dockerfile and no image, such as {tmp_path}/c: "
        "build their images and name them in task.toml",
        "sandlot: no node prepares images",
        "sandlot: missing: the registry has no such image",
    ]


def test_bench(cli: Run) -> None:
    done = cli("bench", "--count", "20", "--concurrency", "4", "--json")
    document = json.loads(done.stdout)
    assert document["exec_p50_ms"] > 0
    assert document["execs_per_second"] > 0
    assert "p50" in cli("bench", "--count", "5").stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["exec", "sb-none", "true"], 3),
        (["logs", "sb-none"], 3),
        (["shell", "sb-none"], 3),
        (["--api-key", "wrong", "ps"], 4),
        (["--url", "http://127.0.0.1:1", "ps"], 1),
        (["run", "--cpu", "0", "host", "--", "true"], 2),
        (["run", "--timeout", "-1", "host", "--", "true"], 2),
    ],
)
def test_an_error_is_one_line_without_a_traceback(cli: Run, arguments: list[str], code: int) -> None:
    assert_one_line(cli(*arguments), code)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["ps"], 1),
        (["run", "host", "--", "true"], 125),
        (["exec", "sb-none", "true"], 125),
        (["exec", "-d", "sb-none", "true"], 125),
        (["shell"], 125),
        (["shell", "sb-none"], 125),
        (["--url", "nonsense", "ps"], 4),
        (["rm"], 2),
        (["frobnicate"], 2),
        (["exec"], 2),
        (["run", "--memory", "lots", "host", "--", "true"], 2),
        (["run", "--network", "some", "host", "--", "true"], 2),
        (["run", "host"], 2),
        (["cp", "/no/such/file", "sb-none:/tmp"], 2),
        (["pools", "set", "p", "--size", "-1"], 2),
    ],
)
def test_an_error_without_a_server_is_one_line_without_a_traceback(
    lone_cli: Run, arguments: list[str], code: int
) -> None:
    assert_one_line(lone_cli(*arguments), code)


def assert_one_line(done: subprocess.CompletedProcess[str], code: int) -> None:
    assert done.returncode == code, done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_closed_descriptors_are_empty(server: Server, box: Sandbox, tmp_path: Path) -> None:
    env = {**environment(server.url, server.api_key, tmp_path), **WARNINGS_SHOWN}

    def run(closed: str, *arguments: str) -> tuple[int, str, str]:
        line = [*("sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "sandlot"), *arguments]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=SECONDS, env=env)
        return done.returncode, done.stdout, done.stderr

    assert run(">&-", "ps") == (0, "", "")
    assert run(">&-", "--version") == (0, "", "")
    assert run(">&-", "exec", box.id, "--", "echo out; echo err >&2; exit 3") == (3, "", "err\n")
    assert run("2>&-", "exec", box.id, "--", "echo out; echo err >&2; exit 3") == (3, "out\n", "")
    assert run("2>&-", "logs", "sb-none") == (3, "", "")
    assert run("<&-", "exec", "-i", box.id, "--", "cat; echo end") == (0, "end\n", "")
    assert run("<&- >&- 2>&-", "exec", "-i", box.id, "--", "cat; exit 4") == (4, "", "")


def test_a_reader_that_leaves_is_no_error(cli: Run, box: Sandbox) -> None:
    client = box.client.endpoint()
    with subprocess.Popen(
        [sys.executable, "-m", "sandlot", "exec", box.id, "--", "yes | head -c 3000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(client.url, client.api_key, Path("/nonexistent")),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(4) == b"y\ny\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(SECONDS) == 141


def test_a_live_sandbox_is_in_top(cli: Run, box: Sandbox) -> None:
    box.exec("true")
    stats = json.loads(cli("top", "--json").stdout)
    assert stats["sandboxes"]["RUNNING"] >= 1
    screen = cli("top", "--once").stdout
    assert "running" in screen
    for used in stats["usage"]:  # where the server knows it
        assert used["sandbox_id"] in screen
        assert used["memory"] > 0


INTERACTIVE = {"up", "shell", "mcp"}


def test_every_command_but_the_interactive_ones_speaks_json() -> None:
    from sandlot.cli.app import build
    from typer.main import get_command

    def leaves(command: Any, path: str) -> Iterator[tuple[str, Any]]:
        for name, child in getattr(command, "commands", {"": command}).items():
            if child is command:
                yield path, command
            else:
                yield from leaves(child, f"{path} {name}".strip())

    found = dict(leaves(get_command(build([])), ""))
    assert {"pools set", "local clean", "ps", "grade"} <= set(found)
    without = {
        path for path, command in found.items() if not any("--json" in part.opts for part in command.params)
    }
    assert without == INTERACTIVE


def test_version_and_help(lone_cli: Run) -> None:
    from sandlot import __version__

    assert lone_cli("--version").stdout == lone_cli("version").stdout == f"sandlot {__version__}\n"
    text = lone_cli("--help").stdout
    for command in (
        "up",
        "run",
        "ps",
        "exec",
        "shell",
        "cp",
        "logs",
        "rm",
        "pools",
        "top",
        "bench",
        "doctor",
        "grade",
    ):
        assert f"  {command} " in text
