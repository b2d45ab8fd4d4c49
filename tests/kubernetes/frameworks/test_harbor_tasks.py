"""Unmodified harbor's tasks on the cluster: the tests of tests/frameworks, in the image that its nodes have."""

from __future__ import annotations

import pytest

from tests.frameworks.harbor_tasks import CONNECTS
from tests.frameworks.test_harbor import *  # noqa: F403 - its tests are the tests
from tests.frameworks.test_harbor import Backend

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module")
def backend() -> Backend:
    """A cluster waits for a node with GPUs, up to the task's limit; gVisor drops what a policy forbids, silently."""
    return Backend(no_gpus="SandboxInfrastructureError", no_gpus_word="nvidia.com/gpu", asks=CONNECTS)
