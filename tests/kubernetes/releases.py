"""Releases of a test's own beside the one that most tests share: for what changes or takes away an installation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.kubernetes.stack import Stack

# One gateway and one controller, no pool: what another release needs at least.
SMALL = ("--set-json", "pools={},gateway.replicas=1,controller.replicas=1")


@contextmanager
def release_of_its_own(name: str, *, runtime: str) -> Iterator[Stack]:
    """Not installed yet; uninstalled at the end, whatever is there by then."""
    if not os.environ.get("SANDLOT_TEST_CONTEXT") and not os.environ.get("SANDLOT_TEST_CLUSTER"):
        pytest.skip("no cluster: `make test-cluster` makes one and runs these")
    base = Stack.of_environment(runtime=runtime)
    made = Stack.of_environment(runtime=runtime, release=f"{base.release}-{name}")
    try:
        yield made
    finally:
        made.uninstall()
