"""Unmodified Deep Agents Code: its sandbox factory, and its own program `dcode` with a scripted model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from sandlot import Client, Sandbox

from tests.frameworks.conftest import framework_python
from tests.frameworks.test_agent_frameworks import HERE, assert_nothing_left
from tests.prime.scripted_model import serve
from tests.prime.server import Server
from tests.sdk.conftest import service
from tests.sdk.service.faults import Fault
from tests.sdk.service.server import Service
from tests.waiting import wait_until, wait_until_empty

__all__ = ["service"]

pytestmark = [pytest.mark.clients, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]

PAGE = HERE.parents[1] / "docs/deep-agents-code.md"
TURNS = [{"command": "echo six > dcode-was-here; echo made"}, {"command": "cat dcode-*; pwd; exit 3"}]
# Without what it downloads or asks other servers for.
ALONE = {"DEEPAGENTS_CODE_OFFLINE": "1", "DEEPAGENTS_CODE_NO_UPDATE_CHECK": "1"}


def settings(file: Path) -> Path:
    """Write the configuration of the page, with an image that is here."""
    [text] = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    file.parent.mkdir(exist_ok=True)
    file.write_text(text.replace("registry.example.org/task:1", "host"))
    return file


def test_the_provider_is_found_and_makes_sandboxes(
    server: Server, run_framework: Callable[..., str], tmp_path: Path
) -> None:
    file = settings(tmp_path / "config.toml")
    run_framework("deepagents-code", str(HERE / "deepagents_code_script.py"), str(file))
    assert_nothing_left(server)


def test_its_own_tests_of_sandboxes(server: Server, run_own_suite: Callable[..., str]) -> None:
    name = "Deep Agents Code's integration tests of sandboxes"
    run_own_suite("deepagents-code", name, HERE / "deepagents_code_suite.py", tests="tests")
    assert_nothing_left(server)


@pytest.fixture
def dcode(sdk_path: Path, tmp_path: Path) -> list[str]:
    """The command of an environment with the SDK beside Deep Agents Code, whose server process gets no PYTHONPATH."""
    package = framework_python("deepagents-code")
    home = tmp_path / "environment"
    subprocess.run([str(package), "-m", "venv", "--without-pip", str(home)], check=True)
    (packages,) = package.parents[1].glob("lib/python3*/site-packages")
    (ours,) = home.glob("lib/python3*/site-packages")
    (ours / "both.pth").write_text(f"{packages}\n{sdk_path}\n")
    return [str(home / "bin" / "python"), "-B", str(package.with_name("dcode"))]


def command(dcode: list[str], *more: str) -> list[str]:
    return [
        *(*dcode, "--sandbox", "sandlot", *more, "--no-mcp", "--shell-allow-list", "all"),
        *("--model", "openai:scripted", "--model-params", json.dumps({"use_responses_api": False})),
        *("--quiet", "--non-interactive", "Do what you are told."),
    ]


def variables(server: Server, home: Path, *, model: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "OPENAI_BASE_URL": model,
        "OPENAI_API_KEY": "x",
        "SANDLOT_URL": server.url,
        "SANDLOT_API_KEY": server.api_key,
        **ALONE,
    }


@pytest.mark.parametrize("configured", [False, True], ids=["default", "configured"])
def test_dcode_runs_its_commands_in_a_sandbox(
    configured: bool, server: Server, dcode: list[str], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    more: list[str] = []
    if configured:
        settings(home / ".deepagents" / "config.toml")
        (home / "setup.sh").write_text("echo five > dcode-set-up\n")
        more = ["--sandbox-setup", "setup.sh"]
    with serve(TURNS, tool="execute") as url:
        done = subprocess.run(
            command(dcode, *more),
            env=variables(server, home, model=url),
            cwd=home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:] + server.log()[-2000:]
    said = "five six" if configured else "six"
    assert re.sub(r"\s+", " ", done.stdout).startswith(f"The tool said {said} /workspace "), done.stdout
    assert "exit code 3" in done.stdout
    assert not Path("/workspace/dcode-was-here").exists()
    assert not (home / "dcode-was-here").exists()
    with Client(url=server.url, api_key=server.api_key) as client:
        wait_until_empty(lambda: Sandbox.list(client=client))


def test_a_signal_that_ends_dcode_ends_its_sandbox(server: Server, dcode: list[str], tmp_path: Path) -> None:
    with (
        serve([{"command": "touch /workspace/begun; sleep 600"}], tool="execute") as url,
        Client(url=server.url, api_key=server.api_key) as client,
        subprocess.Popen(
            command(dcode),
            env=variables(server, tmp_path, model=url),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as running,
    ):
        try:
            (found,) = wait_until(lambda: Sandbox.list(client=client))
            box = Sandbox.connect(found.id, client=client)
            wait_until(lambda: box.files.exists("/workspace/begun"))
            running.terminate()
            assert running.wait(60) == 128 + signal.SIGTERM
        finally:
            running.kill()
        wait_until_empty(lambda: Sandbox.list(client=client))


def test_a_process_that_is_killed_while_it_prepares_its_sandbox_leaves_none(
    service: Service, sdk_path: Path
) -> None:
    service.faults.append(Fault("/mkdir", hold=True))
    script = (
        "from sandlot.integrations.deepagents_code import SandlotProvider; SandlotProvider().get_or_create()"
    )
    with subprocess.Popen(
        [str(framework_python("deepagents-code")), "-c", script],
        env={**service.environment(), "PYTHONPATH": str(sdk_path)},
    ) as making:
        try:
            wait_until(lambda: service.calls("/mkdir") or making.poll() is not None)
        finally:
            making.kill()
    wait_until(lambda: [box["status"] for box in service.sandboxes.values()] == ["TERMINATED"])
