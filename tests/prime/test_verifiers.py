"""Published verifiers, unmodified: rollouts from create to metrics, against a real stack and a scripted model."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.policies import skip_without_egress_policies
from tests.prime.conftest import run_client
from tests.prime.server import Server

pytestmark = [pytest.mark.clients, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.longest
@pytest.mark.parametrize(
    ("kind", "said", "metrics"),
    [
        ("bash", ["(no output)", "Error: Command timed out after 10s", "42"], set()),
        ("python", ["(no output)", "Out[2]: 42"], {"python_ready_wait_time"}),
    ],
)
def test_rollouts_of_the_sandbox_environments(server: Server, kind: str, said: list[str], metrics: set[str]):
    if (
        kind == "python"
        and server.image == "host"
        and subprocess.run(["bash", "-lc", "command -v python"], capture_output=True, check=False).returncode
    ):
        pytest.skip("PythonEnv runs `python`, which the image `host` has not on this machine")
    seen = run_client(
        server,
        Path(__file__).with_name("verifiers_script.py"),
        kind,
        package="verifiers",
        version="0.1.14",
        also=("prime-sandboxes==0.2.36",),
    )
    assert seen["errors"] == ["None", "None"]
    assert seen["said"] == [said, said]
    assert seen["rewards"] == [1.0, 1.0]
    assert seen["left"] == []
    timed = {"sandbox_ready_wait_time", "sandbox_command_execution_time", *metrics}
    assert timed <= set(seen["metrics"])
    assert all(0 < seen["metrics"][name] < 60 for name in timed)


@pytest.mark.longest
def test_rollout_of_the_prime_runtime(server: Server):
    seen = run_client(
        server,
        Path(__file__).with_name("verifiers_runtime_script.py"),
        package="verifiers",
        version="0.4.0",
        also=("prime-sandboxes==0.5.1",),
    )
    assert seen["errors"] == []
    assert seen["said"] == ["(no output)", "42\nb c\n"]
    assert (seen["reward"], seen["metrics"]) == (1.0, {"echoed": 1.0})
    assert all(0 < seconds < 60 for seconds in seen["timing"].values())
    skip_without_egress_policies()
    assert "the sandbox's egress policy does not let forbidden.example through" in seen["restricted"]
