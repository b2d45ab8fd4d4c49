"""A release under gVisor for the suites of frameworks, whole, and so only with $SANDLOT_WHOLE_SUITES: E2B's wire, checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from tests.frameworks.conftest import run_framework, run_suite, sdk_path
from tests.frameworks.test_e2b import DOMAIN
from tests.kubernetes.prime.conftest import DEFAULT, server_of
from tests.kubernetes.prime.shared_directory import shared_directory
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import IMAGE, Stack
from tests.prime.environments import WHOLE
from tests.prime.server import Server

__all__ = ["run_framework", "run_suite", "sdk_path"]

TEMPLATES = (
    "code-interpreter-v1",
    "python:3.12-slim",
    "base",
)  # of aliases of one image, SDKs are told the last


@pytest.fixture(scope="session")
def whole() -> Iterator[Stack]:
    """With one gateway: frameworks' scripts know where their files are by then."""
    if WHOLE not in os.environ:
        pytest.skip("long: `make test-frameworks-cluster` runs these")
    with (
        release_of_its_own("frameworks", runtime="gvisor") as stack,
        shared_directory(stack, "frameworks") as claim,
    ):
        values = {
            "pools": {"default": {"size": 4, "template": DEFAULT}},
            "gateway.replicas": 1,
            "gateway.checkpoints.claim": claim,
            "gateway.e2b.enabled": True,
            "gateway.e2b.domain": DOMAIN,  # scripts ask for the names of ports, which no name server knows
            "gateway.e2b.templates": [f"{name}={IMAGE}" for name in TEMPLATES],
        }
        assignments = ",".join(f"{name}={json.dumps(value)}" for name, value in values.items())
        try:
            stack.install("--set-json", assignments)
            yield stack
        finally:
            stack.uninstall()  # before the directory goes


@pytest.fixture(scope="module")
def server(whole: Stack) -> Server:
    return server_of(whole, tcp=False)
