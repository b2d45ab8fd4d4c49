"""Inspect AI, unmodified, with Sandlot's provider: its own checks of a provider, evals, losses, and the page's example."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.conftest import Run
from tests.prime.server import Server

pytestmark = [pytest.mark.clients, pytest.mark.root, pytest.mark.timeout(900)]
HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "inspect.md"
CHECKS = 44


def test_inspect_s_own_checks(server: Server, run_suite: Run, tmp_path: Path) -> None:
    # A copy, far from the tree's conftest.py. Not root, who may read and write what a mode denies.
    shutil.copy(HERE / "inspect_self_check.py", tmp_path / "test_check.py")
    service = f"{{image: {json.dumps(server.image)}, user: nobody, working_dir: /tmp/work, command: tail -f /dev/null}}"
    (tmp_path / "compose.yaml").write_text(f"services: {{default: {service}}}\n")
    scopes = [f"-oasyncio_default_{what}_loop_scope=module" for what in ("fixture", "test")]
    checks = ["-q", "-oasyncio_mode=auto", *scopes, f"--rootdir={tmp_path}", str(tmp_path)]
    told = run_suite("inspect-ai", "Inspect's self_check", "-c", PYTEST_IN, str(tmp_path), *checks)
    assert re.search(rf"^{CHECKS} passed", told, re.MULTILINE), told


PYTEST_IN = "import os, sys, pytest; os.chdir(sys.argv[1]); sys.exit(pytest.main(sys.argv[2:]))"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the page's example; in it the evals run."""
    made = tmp_path_factory.mktemp("evals")
    blocks = dict(re.findall(r"^```(yaml|python)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    (made / "compose.yaml").write_text(blocks["yaml"])
    (made / "example.py").write_text(blocks["python"])
    (made / "small-compose.yaml").write_text("services: {box: {image: host, mem_limit: 96mb}}\n")
    command = "sh -c 'echo $$(id -un) $$(pwd) > new && mv new who'"
    service = f"{{image: host, user: nobody, working_dir: /tmp/own/work, command: {json.dumps(command)}}}"
    (made / "started-compose.yaml").write_text(f"services: {{box: {service}}}\n")
    return made


@pytest.fixture
def results(run_framework: Run, directory: Path) -> dict[str, Any]:
    """What became of the evals: one process for all tests, as Inspect takes 5 s of CPU to import."""
    file = directory / "results.json"
    if not file.exists():
        file.write_text("{}")  # one that fails is not run again for each test
        quiet = {"INSPECT_DISPLAY": "none"}
        run_framework("inspect-ai", str(HERE / "inspect_evals.py"), str(directory), environment=quiet)
    return json.loads(file.read_text())


def test_a_lost_sandbox_is_no_score(results: dict[str, Any]) -> None:
    lost = results["lost"]
    assert (lost["status"], lost["scores"]) == ("error", {})
    assert "sandbox_lost" in lost["error"] or "SandboxLost" in lost["error"], lost
    retried = results["retried"]
    assert (retried["status"], retried["error"], len(retried["retries"])) == ("success", None, 1)
    assert retried["scores"]["last_tool"] == [1, "done\n"]


def test_a_command_that_is_out_of_memory_has_a_result(results: dict[str, Any]) -> None:
    assert results["oom"]["error"] is None
    assert results["oom"]["scores"]["last_tool"] == [1, "137 text"]


def test_only_the_code_s_own_end_of_its_sandbox_is_an_error_that_the_model_sees(
    results: dict[str, Any],
) -> None:
    assert results["ends"] == {
        "oom": "SandboxUnavailableError",
        "node_lost": "SandboxLost",
        "deleted": "SandboxLost",
    }


def test_a_service_s_command_has_its_user_and_working_directory(results: dict[str, Any]) -> None:
    assert results["started"][0] == "nobody /tmp/own/work\n"


def test_a_user_writes_the_files_that_its_commands_may_write(results: dict[str, Any]) -> None:
    assert results["started"][1:] == ["\nwritten", "Permission denied"]


def test_a_file_name_that_a_model_made_up_ends_no_sample(results: dict[str, Any]) -> None:
    # All of a class that Inspect gives to the model.
    directory, denied, missing = "IsADirectoryError", "PermissionError", "FileNotFoundError"
    assert results["odd"] == {
        "write": [directory] * 4 + ["ValueError", denied, denied],
        "read": [directory, missing, directory, directory, "ValueError", missing, missing],
        "contents": [denied],
    }
    assert results["spoilt"] == [126, 126]  # commands that cannot be sent


def test_interrupted_samples_leave_no_sandbox(results: dict[str, Any]) -> None:
    assert results["cancelled"] >= 1
    assert results["left"] == []
    assert re.fullmatch(r"sandlot shell \S+ --user nobody", results["command"])


def test_the_page_s_example(results: dict[str, Any]) -> None:
    assert results["example"] == ["success", 1.0]
