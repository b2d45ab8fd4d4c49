"""A stack whose sandboxes have a network namespace of the test's own to reach, with servers in it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.cable import Cable, cable, serving
from tests.prime.egress.sandbox import Sandbox
from tests.prime_rpc.conftest import make_box
from tests.stack import Stack, private_stack
from tests.web import web


@pytest.fixture(scope="module")
def net() -> Iterator[Cable]:
    if os.geteuid() != 0:
        pytest.skip("needs root: a network namespace")
    with (
        cable("h", network=18) as made,
        serving("0.0.0.0", "::", namespace=made.namespace),
        web(made.inside, namespace=made.namespace),
    ):
        yield made


@pytest.fixture(scope="module")
def stack(net: Cable) -> Iterator[Stack]:
    with private_stack(name_server=net.inside) as running:
        yield running


@pytest.fixture
def sandbox(stack: Stack) -> Iterator[Sandbox]:
    made = Sandbox(stack, make_box(stack))
    yield made
    made.delete()
