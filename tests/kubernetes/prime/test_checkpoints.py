"""Checkpoints of Prime's client on the cluster, on a volume that two gateways share."""

from __future__ import annotations

import pytest

from tests.kubernetes.prime.conftest import server_of
from tests.kubernetes.stack import Stack
from tests.prime.server import Server
from tests.prime.test_checkpoints import test_checkpoint_and_restore  # noqa: F401


@pytest.fixture(scope="module")
def server(whole: Stack) -> Server:
    return server_of(whole, tcp=True)
