"""Prime's RPC client on the cluster through the gateway's TLS port, which it talks HTTP/2 to: the tests of tests/prime_rpc."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kubernetes.prime.conftest import Authority, server_of
from tests.kubernetes.stack import Stack
from tests.prime.conftest import client_python
from tests.prime.trust import trusting
from tests.prime_rpc.test_clients import (
    Client,
    test_client_that_is_gone_leaves_its_process_but_no_command,
    test_commands,
    test_live_processes,
    test_many_at_once,
    test_synchronous_client,
    test_timeouts,
    told,
)

__all__ = [
    "test_client_that_is_gone_leaves_its_process_but_no_command",
    "test_commands",
    "test_live_processes",
    "test_many_at_once",
    "test_synchronous_client",
    "test_timeouts",
    "told",
]


@pytest.fixture(scope="module")
def client(whole: Stack, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    python = client_python("prime-sandboxes", "0.5.1")
    trust = trusting(python, authority=authority.file, directory=tmp_path_factory.mktemp("rpc") / "trust")
    server = replace(server_of(whole, tcp=True), url=whole.tls_url, environment=trust)
    with tempfile.TemporaryDirectory() as home:
        yield Client(python=python, server=server, home=Path(home))
