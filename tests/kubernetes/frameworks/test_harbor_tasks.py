"""Unmodified harbor's tasks on the cluster: the tests of tests/frameworks, in the image that its nodes have."""

from __future__ import annotations

import pytest

from tests.frameworks.test_harbor import *  # noqa: F403 - its tests are the tests

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module")
def without_gpus() -> tuple[str, str]:
    """A cluster waits for a node that has them, up to the task's time limit for its start."""
    return "SandboxInfrastructureError", "nvidia.com/gpu"
