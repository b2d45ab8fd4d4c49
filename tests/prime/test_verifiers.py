"""Published verifiers, unmodified: rollouts from create to metrics, against a real stack and a scripted model."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.policies import skip_without_egress_policies
from tests.prime.conftest import run_client
from tests.prime.server import Server

# `longest`: the tests of this module read the results of one process.
pytestmark = [
    pytest.mark.clients,
    pytest.mark.longest,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def rollouts(server: Server) -> dict[str, Any]:
    """What became of those of each sandbox environment, in one process: verifiers takes seconds of CPU to import."""
    kinds = ["bash", "code"]
    if (
        server.image != "host"
        or not subprocess.run(
            ["bash", "-lc", "command -v python"], capture_output=True, check=False
        ).returncode
    ):
        kinds.append("python")
    return run_client(
        server,
        Path(__file__).with_name("verifiers_script.py"),
        *kinds,
        package="verifiers",
        version="0.1.14",
        also=("prime-sandboxes==0.2.36",),
    )


@pytest.mark.parametrize(
    ("kind", "said", "metrics"),
    [
        ("bash", ["(no output)", "Error: Command timed out after 10s", "42"], set()),
        ("python", ["(no output)", "Out[2]: 42"], {"python_ready_wait_time"}),
    ],
)
def test_rollouts_of_the_sandbox_environments(
    rollouts: dict[str, Any], kind: str, said: list[str], metrics: set[str]
):
    if kind not in rollouts:
        pytest.skip("PythonEnv runs `python`, which the image `host` has not on this machine")
    seen = rollouts[kind]
    assert seen["errors"] == ["None", "None"]
    assert seen["said"] == [said, said]
    assert seen["rewards"] == [1.0, 1.0]
    assert seen["left"] == []
    timed = {"sandbox_ready_wait_time", "sandbox_command_execution_time", *metrics}
    assert timed <= set(seen["metrics"])
    assert all(0 < seen["metrics"][name] < 60 for name in timed)


def test_a_lost_sandbox_masks_its_completion_and_leaves_its_group_alone(rollouts: dict[str, Any]):
    """The environment of the load test `code-env`: a program that kills itself is a zero, a sandbox that ends is none."""
    told = rollouts["code"]
    assert [each["left"] for each in told] == [[]] * 8
    assert [(each["number"], each["reward"], each["error"]) for each in told] == [
        (0, "nan", "SandboxError"),
        (0, "1.0", None),
        (1, "nan", "SandboxError"),
        (1, "1.0", None),
        *((number, "0.0", None) for number in (2, 2, 3, 3)),
    ]
    assert [each["advantage"] for each in told] == [0.0] * 8


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
