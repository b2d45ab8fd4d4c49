"""Releases of a test's own beside the one that most tests share: for what changes or takes away an installation."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.kubernetes.stack import Stack

# One gateway and one controller, no pool: what another release needs at least.
SMALL = ("--set-json", "defaultPool.enabled=false,pools={},gateway.replicas=1,controller.replicas=1")


def with_slots(pool: Mapping[str, Any], *, gateways: int = 1) -> tuple[str, str]:
    """The options of a release with one pool of slots, whose images go soon after their use."""
    values = {
        "nodeAgent": {"enabled": True, "config": {"minFree": 0, "useGrace": 1, "housekeeping": 1}},
        "slots": {"enabled": True},
        "pools": {"slots": pool},
        "gateway.replicas": gateways,
        "controller.replicas": 1,
    }
    return "--set-json", ",".join(f"{name}={json.dumps(value)}" for name, value in values.items())


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
