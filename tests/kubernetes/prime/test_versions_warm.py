"""The newest of each generation of Prime's clients in the scenario of tests/prime, on warm sandboxes under gVisor."""

from __future__ import annotations

import pytest

from tests.kubernetes.prime.conftest import server_of
from tests.kubernetes.stack import Stack
from tests.prime.server import Server
from tests.prime.test_versions import *  # noqa: F403 - its tests are the tests

pytestmark = pytest.mark.parametrize(
    "case", [("0.2.42", None), ("0.5.1", None)], ids=["0.2.42", "0.5.1"], indirect=True
)


@pytest.fixture(scope="module")
def server(whole: Stack) -> Server:
    return server_of(whole, tcp=True)
