"""A local stack per test or per module, a client for it, and the certainty that nothing stays behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sandlot import Client

from tests.e2e import processes
from tests.stack import Stack, private_stack
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def shared_stack() -> Iterator[Stack]:
    with private_stack() as running:
        yield running


@pytest.fixture
def empty_stack(shared_stack: Stack) -> Stack:
    """The module's stack, when the sandboxes of the test before have gone."""
    wait_until(lambda: not any((shared_stack.state_dir / "instances").iterdir()))
    wait_until(lambda: not processes.sidecars(shared_stack))
    return shared_stack


@pytest.fixture
def stack() -> Iterator[Stack]:
    with private_stack() as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    made = Client(url=stack.url, api_key=stack.api_key)
    try:
        yield made
    finally:
        made.close()
