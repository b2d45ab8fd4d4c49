"""The `prime` command line on the cluster: the tests of tests/prime."""

from __future__ import annotations

import pytest

from tests.kubernetes.prime.conftest import server_of
from tests.kubernetes.stack import Stack
from tests.prime.server import Server
from tests.prime.test_cli import *  # noqa: F403 - its tests are the tests

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(whole: Stack) -> Server:
    return server_of(whole, tcp=True)
