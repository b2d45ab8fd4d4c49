"""OpenSSH and Prime's own command into pods, each connection through whichever of two gateways: the tests of tests/prime."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.kubernetes.prime.conftest import DEFAULT, server_of
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import Stack
from tests.prime.conftest import box, new_box
from tests.prime.server import Server
from tests.prime.test_ssh import *  # noqa: F403 - its tests are the tests

__all__ = ["box", "new_box"]


@pytest.fixture(scope="module")
def under_runc() -> Iterator[Stack]:
    with release_of_its_own("ssh", runtime="runc") as stack:
        values = {"pools": {"default": {"size": 2, "template": DEFAULT}}, "gateway.ssh.port": 30051}
        assignments = ",".join(f"{name}={json.dumps(value)}" for name, value in values.items())
        stack.install("--set-json", assignments)
        yield stack


@pytest.fixture(scope="module", params=["whole", "under_runc"])
def server(request: pytest.FixtureRequest) -> Server:
    return server_of(request.getfixturevalue(request.param), tcp=True)
