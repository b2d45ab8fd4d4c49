"""Prime's clients in the scenario of tests/prime, on sandboxes under runc that are started for them."""

from __future__ import annotations

import pytest

from tests.kubernetes.prime.conftest import server_of
from tests.kubernetes.stack import Stack
from tests.prime.server import Server
from tests.prime.test_versions import *  # noqa: F403 - its tests are the tests

# The oldest of each kind of sandbox that clients ask for; tests/prime has all versions on the local backend.
CASES = (
    ("0.2.6", None),
    ("0.2.27", "container"),
    ("0.2.36", "vm"),
)
IDS = ["-".join(filter(None, case)) for case in CASES]
pytestmark = pytest.mark.parametrize(
    ("stack", "case"), [("runc", case) for case in CASES], ids=IDS, indirect=True
)


@pytest.fixture(scope="module")
def server(stack: Stack) -> Server:
    return server_of(stack, tcp=False)
