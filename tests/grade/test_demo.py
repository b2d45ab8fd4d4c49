"""The demo and the grading of a file from beginning to end: a real stack, real sandboxes, hostile programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandlot import Client, Pools, Sandbox

from tests.leaks import no_leaks
from tests.stack import Stack

SANDLOT = str(Path(sys.executable).with_name("sandlot"))
ADD = "def check(f):\n    assert f(1, 2) == 3\n"


@pytest.fixture
def directory() -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("needs root: each hostile kind gets its own verdict only with cgroups")
    with (
        tempfile.TemporaryDirectory(prefix="sandlot-") as name,
        no_leaks(marker=name, descriptors=False),
    ):
        yield Path(name)


def run(*arguments: str, code: int = 0, **environment: str) -> dict[str, Any]:
    """The JSON that a command prints."""
    done = subprocess.run(
        [SANDLOT, *arguments, "--json"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


@pytest.mark.root
@pytest.mark.heavy
@pytest.mark.longest
def test_the_demo_grades_each_kind_as_it_must_and_leaves_nothing(directory: Path) -> None:
    report = directory / "demo.html"
    found = run("demo", "--problems", "1", "--html", str(report), TMPDIR=str(directory))
    assert found["faults"] == []
    assert found["results"] == {
        "canonical": {"passed": 1},
        "mutated operator": {"failed": 1},
        "returns None": {"failed": 1},
        "returns constant": {"failed": 1},
        "endless loop": {"timeout": 1},
        "eats memory": {"oom": 1},
        "writes 100 MB": {"output_limit": 1},
        "kills all": {"signaled": 1},
        "fork bomb": {"pids_limit": 1},
        "fills disk": {"disk_full": 1},
    }
    assert set(found["timings"]) == {"create", "exec", "whole"}
    assert "all as expected" in report.read_text()
    assert [path.name for path in directory.iterdir()] == ["demo.html"]


@pytest.mark.root
@pytest.mark.heavy
@pytest.mark.longest
def test_the_demo_runs_on_a_deployment_and_leaves_it_as_it_was(directory: Path) -> None:
    with Stack(directory / "state") as stack:
        server = {"SANDLOT_URL": stack.url, "SANDLOT_API_KEY": stack.api_key}
        words = ("--image", "host", "--problems", "1", "--concurrency", "4")
        found = run("demo", *words, "--html", str(directory / "demo.html"), **server)
        assert found["faults"] == []
        assert found["results"]["canonical"] == {"passed": 1}
        with Client(url=stack.url, api_key=stack.api_key) as client:
            assert Pools(client=client).list() == []
            assert Sandbox.list(client=client) == []
    assert f"{stack.url}</td>" in (directory / "demo.html").read_text()


def test_the_demo_on_a_deployment_wants_to_know_which() -> None:
    without = {name: value for name, value in os.environ.items() if not name.startswith("SANDLOT_")}
    done = subprocess.run([SANDLOT, "demo", "--image", "x"], env=without, capture_output=True, text=True)
    assert done.returncode == 2
    assert "SANDLOT_URL" in done.stderr


@pytest.mark.root
def test_a_file_is_graded_once_and_only_what_is_new_the_next_time(directory: Path) -> None:
    lines = [
        {"code": "def add(a, b):\n    return a + b\n", "test": ADD, "entry_point": "add"},
        {"code": "def add(a, b):\n    return a - b\n", "test": ADD, "entry_point": "add"},
        {"code": "while True: pass\n", "test": "", "kind": "loop"},
        {"code": "raise SystemExit(127)\n", "test": "", "kind": "as if not found"},
    ]
    file = directory / "samples.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    output = directory / "samples_results.jsonl"
    with Stack(directory / "state") as stack:
        server = {"SANDLOT_URL": stack.url, "SANDLOT_API_KEY": stack.api_key}
        first = run("grade", str(file), "--timeout", "10", **server)
        with file.open("a") as stream:
            stream.write(json.dumps(lines[0]) + "\n")
        second = run("grade", str(file), "--timeout", "10", **server)
        results = [json.loads(line) for line in output.read_text().splitlines()]
        shorter = run("grade", str(file), "--timeout", "1", **server)
    others = {"loop": {"timeout": 1}, "as if not found": {"failed": 1}}
    assert first["kinds"] == {"sample": {"passed": 1, "failed": 1}, **others}
    assert (first["rollouts"], first["reused"]) == (4, 0)
    assert second["kinds"] == {"sample": {"passed": 2, "failed": 1}, **others}
    assert (second["rollouts"], second["reused"]) == (5, 4)
    assert [result["result"] for result in results] == ["passed", "failed", "timeout", "failed", "passed"]
    assert (shorter["rollouts"], shorter["reused"]) == (5, 0)  # with another limit a grade may be another


def test_a_line_that_cannot_be_used_stops_before_anything_runs(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    file.write_text('{"code": "x = 1", "test": ""}\n{"code": 7, "test": ""}\n')
    # A server that is not there: it must not even be asked for.
    found = run("grade", str(file), code=2, SANDLOT_URL="http://127.0.0.1:9", SANDLOT_API_KEY="k")
    assert found == {
        "error": "InputError",
        "message": f"{file}:2: field 'code': must be a string, not int",
    }
    assert not (tmp_path / "samples_results.jsonl").exists()


def test_results_are_not_written_plain_into_a_file_named_gz(tmp_path: Path) -> None:
    file, output = tmp_path / "samples.jsonl", tmp_path / "r.jsonl.gz"
    file.write_text('{"code": "x = 1", "test": ""}\n')
    server = {"SANDLOT_URL": "http://127.0.0.1:9", "SANDLOT_API_KEY": "k"}
    found = run("grade", str(file), "--output", str(output), code=2, **server)
    why = "results are written line by line, uncompressed; pass --output a name without .gz"
    assert found == {"error": "InputError", "message": f"{output}: {why}"}
    assert not output.exists()
