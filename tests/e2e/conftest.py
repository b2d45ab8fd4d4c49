"""A local stack per test, a client for it, and the certainty that nothing stays behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sandlot import Client

from tests.stack import Stack, private_stack


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
