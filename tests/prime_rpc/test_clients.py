"""Published prime-sandboxes packages of the RPC generation, unmodified, against a real stack."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.prime.conftest import client_python
from tests.prime.environments import WHOLE
from tests.prime.server import Server
from tests.stack import Stack

pytestmark = [pytest.mark.clients, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(900)]

# The older runs test_versions.py's scenario, too; these scripts take 11 s of CPU for each.
VERSIONS = ("0.4.7", "0.5.1") if WHOLE in os.environ else ("0.5.1",)
SCRIPTS = Path(__file__).with_name("client_scripts.py")


class Client:
    """Runs scripts in the environment of one version."""

    def __init__(self, *, python: Path, server: Server, home: Path) -> None:
        self._python = python
        self._server = server
        self._home = home

    def begin(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self._python), str(SCRIPTS), name, *arguments],
            env=self._server.variables(self._home),
            cwd=self._home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def result(self, process: subprocess.Popen[str], *, timeout: float = 300.0) -> dict[str, Any]:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            _, err = process.communicate()
            raise AssertionError(f"the client did not end: {err[-3000:]}") from None
        assert process.returncode == 0, f"{err[-3000:]}\n{self._server.log()[-2000:]}"
        return json.loads(out.splitlines()[-1])

    def run(self, name: str, *arguments: str) -> dict[str, Any]:
        return self.result(self.begin(name, *arguments))


@pytest.fixture(params=VERSIONS, scope="module")
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Client]:
    python = client_python("prime-sandboxes", request.param)
    with tempfile.TemporaryDirectory() as home:
        yield Client(python=python, server=server, home=Path(home))


@pytest.fixture(scope="module")
def told(client: Client) -> dict[str, Any]:
    """What one process of the client says: its imports take longer than most scripts."""
    return client.run("together", "commands", "timeouts", "live", "many", "sync")


def test_commands(told: dict[str, Any]):
    seen = told["commands"]
    assert seen["env"] == ["b c\n/tmp\n", "err\n", 3]
    assert seen["bash"] == ["bash\n", "", 0]
    assert seen["user"] == ["0\n", "", 0]
    assert seen["missing"][2] == 127
    assert seen["signal"] == ["", "", -9]
    assert seen["bytes"] == ["a\ufffdb", "", 0]
    assert seen["unicode"][0].endswith("ü€😀")
    assert seen["orphan"] == ["started\n", "", 0]
    assert seen["cwd"][0] == "APIError"
    assert "/no/such/place" in seen["cwd"][1]
    assert seen["long"] == ["400000\n", "", 0]
    assert seen["large"] == [5_000_000, ""]
    assert seen["gone"][0] == "SandboxNotRunningError"


def test_timeouts(told: dict[str, Any]):
    seen = told["timeouts"]
    assert seen["kind"] == "timeout of True"
    assert seen["took"] < 90  # of 4343
    assert seen["cancelled"] in ("CancelledError", "APIError")
    assert seen["left"] == ""


def test_live_processes(told: dict[str, Any]):
    seen = told["live"]
    assert seen["lines"] == ["out one\n", "out two\n", "out end\n"]
    assert (seen["code"], seen["stderr"], seen["pid"]) == (5, "err one\nerr two\nerr end\n", True)
    assert (seen["trapped"], seen["terminate"], seen["kill"]) == (6, -15, -9)
    assert seen["left"] == ""
    assert seen["megabyte"]


def test_live_process_survives_the_gateway(client: Client, stack: Stack):
    process = client.begin("reattached")
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "kill\n"
    stack.kill()
    stack.start()
    process.stdin.write("\n")
    process.stdin.flush()
    seen = client.result(process)
    assert seen == {"answer": "got after\n", "same": "yes\n", "pid": True, "code": -9}


def test_client_that_is_gone_leaves_its_process_but_no_command(client: Client):
    left = client.run("abandoned")
    assert client.run("look", left["sandbox"])["found"] == "sleep 4545"


def test_many_at_once(told: dict[str, Any]):
    assert told["many"] == {"commands": True, "processes": True}


def test_synchronous_client(told: dict[str, Any]):
    assert told["sync"] == {"answer": ["sync\n", "", 0], "errors": ["SandboxNotRunningError"]}
